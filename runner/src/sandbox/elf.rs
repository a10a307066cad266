//! Whether a file is a static program for this machine, by its first bytes. Pure: it opens and runs nothing.

/// How much of a file is looked at.
pub(super) const LOOK_BYTES: u64 = 64 << 10;

const MAGIC: &[u8] = b"\x7fELF";
const LITTLE_64: [u8; 2] = [2, 1];
const INTERPRETER: u32 = 3;

/// The processor of this program, as the format numbers it.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// Says what is wrong with a program whose file begins with `bytes`.
///
/// # Errors
/// The defect, as the end of a sentence about the file.
pub(super) fn judge(bytes: &[u8]) -> Result<(), &'static str> {
    if !bytes.starts_with(MAGIC) {
        return Err("is no program");
    }
    let foreign = "is a program for another processor";
    if bytes.get(4..6) != Some(&LITTLE_64[..]) {
        return Err(foreign);
    }
    let cut = "is damaged";
    let half = |at: usize| bytes.get(at..at + 2).and_then(|two| two.try_into().ok()).map(u16::from_le_bytes);
    let long = |at: usize| bytes.get(at..at + 8).and_then(|all| all.try_into().ok()).map(u64::from_le_bytes);
    if half(18).ok_or(cut)? != MACHINE {
        return Err(foreign);
    }
    let table = usize::try_from(long(32).ok_or(cut)?).map_err(|_| cut)?;
    let (size, count) = (usize::from(half(54).ok_or(cut)?), usize::from(half(56).ok_or(cut)?));
    for entry in 0..count {
        let at = table.checked_add(entry * size).ok_or(cut)?;
        let end = at.checked_add(4).ok_or(cut)?;
        let kind = bytes.get(at..end).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
        if kind.ok_or(cut)? == INTERPRETER {
            return Err("needs libraries that a sandbox may not have");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn program(machine: u16, kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4..6].copy_from_slice(&LITTLE_64);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&u16::try_from(kinds.len()).unwrap().to_le_bytes());
        for kind in kinds {
            let mut entry = [0; 56];
            entry[..4].copy_from_slice(&kind.to_le_bytes());
            bytes.extend(entry);
        }
        bytes
    }

    #[test]
    fn only_a_static_program_of_this_machine_passes() {
        for (bytes, defect) in [
            (program(MACHINE, &[1, 2]), None),
            (program(MACHINE, &[1, INTERPRETER]), Some("libraries")),
            (program(MACHINE ^ 1, &[1]), Some("processor")),
            (program(MACHINE, &[1])[..70].to_vec(), None),
            (program(MACHINE, &[1])[..66].to_vec(), Some("damaged")),
            (b"root:x:0:0:root:/root:/bin/bash\n".to_vec(), Some("no program")),
            (b"#!/bin/sh\n".to_vec(), Some("no program")),
            (Vec::new(), Some("no program")),
        ] {
            match (judge(&bytes), defect) {
                (Ok(()), None) => {}
                (Err(said), Some(wanted)) => assert!(said.contains(wanted), "{said}"),
                (got, wanted) => panic!("{got:?} instead of {wanted:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = judge(&[MAGIC, &LITTLE_64[..], &tail].concat());
        }
    }
}
