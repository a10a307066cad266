//! What is run to install packages. Pure. The names are quoted, and no name can be taken for an option.

use checkfu_shared::environment::Packages;

/// The installers that have something to install, in the order they run: alphabetical.
pub(super) fn installers(packages: &Packages) -> impl Iterator<Item = (&'static str, &[String])> {
    let all: [(&'static str, &[String]); 4] =
        [("apt", &packages.apt), ("cargo", &packages.cargo), ("npm", &packages.npm), ("pip", &packages.pip)];
    all.into_iter().filter(|(_, names)| !names.is_empty())
}

/// The script of one installer.
pub(super) fn of(installer: &str, names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| quote(name)).collect();
    let names = quoted.join(" ");
    let (program, install) = match installer {
        "apt" => (
            "apt-get",
            format!(
                "export DEBIAN_FRONTEND=noninteractive; apt-get update -q && \
                 apt-get install -q -y --no-install-recommends -- {names} && apt-get clean && \
                 rm -rf /var/lib/apt/lists/*"
            ),
        ),
        "cargo" => ("cargo", format!("cargo install --root /usr/local -- {names}")),
        "npm" => ("npm", format!("npm install --global --no-fund --no-audit -- {names}")),
        _ => (
            "python3 -m pip",
            format!(
                "PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore \
                 python3 -m pip install --no-input --no-cache-dir --disable-pip-version-check -- {names}"
            ),
        ),
    };
    format!(
        "{program} --version >/dev/null 2>&1 || {{ echo 'the image has no {installer}; use an image that has it'; \
         exit 127; }}\n( {install} ) 2>&1\n"
    )
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installers_with_something_to_install_run_in_order() {
        let packages =
            Packages { pip: vec!["b".into()], apt: vec!["a".into()], npm: Vec::new(), cargo: Vec::new() };
        let names: Vec<_> = installers(&packages).map(|(name, _)| name).collect();
        assert_eq!(names, ["apt", "pip"]);
        assert_eq!(installers(&Packages::default()).count(), 0);
    }

    #[test]
    fn a_name_is_one_word_and_never_an_option() {
        let script = of("apt", &["x'; touch /pwned; '".into(), "-o".into()]);
        assert!(script.contains(r"-- 'x'\''; touch /pwned; '\''' '-o'"), "{script}");
        for installer in ["cargo", "npm", "pip"] {
            assert!(of(installer, &["name@1".into()]).contains("-- 'name@1'"));
        }
    }
}
