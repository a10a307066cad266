//! What a session leaves behind: the files of its outputs directory.
