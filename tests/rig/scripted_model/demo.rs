//! The built-in script: a small piece of real work that touches every tool once.
//! The words are fixed, the work is not: the commands run in the sandbox on the repository found there, and the
//! closing summary quotes what they printed. A session asked for anything else is answered by repeating it.

use serde_json::{Value, json};

use super::script::{Error, Script, Steps};

/// The word in the user text that starts the work.
pub const WORD: &str = "survey";

const SURVEY_PROGRAM: &str = include_str!("demo/survey.py");
const CLONE: &str = "cd /workspace && rm -rf checkfu && git clone --quiet /opt/checkfu-demo/repository.bundle checkfu \
    && cd checkfu && git log --oneline | head -5 && ls";
const COUNT: &str = "cd /workspace/checkfu && echo \"Rust files: $(git ls-files '*.rs' | wc -l)\" \
    && echo \"Rust lines: $(git ls-files -z '*.rs' | xargs -0 cat | wc -l)\"";

/// The script the stand-alone program plays unless it is given another.
pub fn script() -> Result<Script, Error> {
    Ok(Script::default().when(WORD, Steps::from_values(steps())?))
}

fn steps() -> Vec<Value> {
    let repository = "/workspace/checkfu";
    let program = "/workspace/survey.py";
    vec![
        json!({"delay_ms_per_delta": 15}),
        json!({
            "say": "I will survey the repository: clone it, count its Rust code, and write a report with a picture. \
                First I clone it and look around.",
            "tool": "bash", "input": {"command": CLONE},
        }),
        json!({
            "say": "Three independent looks at once: the packages, the opening comments, and the totals.",
            "tools": [
                {"tool": "glob", "input": {"pattern": "**/Cargo.toml", "path": repository}},
                {"tool": "grep", "input": {"pattern": "^//! .*(never|must)", "path": repository}},
                {"tool": "bash", "input": {"command": COUNT}},
            ],
        }),
        json!({
            "say": "Now a program that counts lines per directory and draws them as bars.",
            "tool": "write", "input": {"file_path": program, "content": SURVEY_PROGRAM},
        }),
        json!({
            "say": "I read back the settings at its top before I change one.",
            "tool": "read", "input": {"file_path": program, "view_range": [1, 24]},
        }),
        json!({
            "say": "The title should say what is counted.",
            "tool": "edit", "input": {
                "file_path": program,
                "old_string": "TITLE = \"Survey\"",
                "new_string": "TITLE = \"Lines of Rust per directory\"",
            },
        }),
        json!({
            "say": "And run it.",
            "tool": "bash", "input": {"command": format!("python3 {program} {repository} /mnt/session/outputs")},
        }),
        json!({
            "say": "I look at the picture myself, and list what I leave behind.",
            "tools": [
                {"tool": "read", "input": {"file_path": "/mnt/session/outputs/lines.png"}},
                {"tool": "bash", "input": {"command": "cd /mnt/session/outputs && ls -l && head -12 report.md"}},
            ],
        }),
        json!({
            "say": "The survey is done. The report, the picture and its drawing are in /mnt/session/outputs. \
                This is what I found:\n\n{{newest}}",
        }),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::process::Command;

    use super::*;

    #[test]
    fn every_tool_of_the_set_is_used() {
        let steps = steps();
        let mut used = HashSet::new();
        for step in &steps {
            used.extend(step["tool"].as_str());
            used.extend(
                step["tools"].as_array().into_iter().flatten().filter_map(|call| call["tool"].as_str()),
            );
        }
        assert_eq!(used, HashSet::from(["bash", "read", "write", "edit", "glob", "grep"]));
        script().unwrap();
    }

    #[test]
    fn the_edit_finds_its_line_exactly_once() {
        let edit = steps().into_iter().find(|step| step["tool"] == "edit").unwrap();
        let old = edit["input"]["old_string"].as_str().unwrap();
        assert_eq!(SURVEY_PROGRAM.matches(old).count(), 1);
    }

    #[test]
    fn the_program_counts_and_draws() {
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("repository/alpha/src");
        let outputs = place.path().join("outputs");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("lib.rs"), "//! One.\n\nfn two() {}\n").unwrap();
        std::fs::write(place.path().join("survey.py"), SURVEY_PROGRAM).unwrap();
        let run = Command::new("python3")
            .current_dir(place.path())
            .args(["survey.py", "repository", "outputs"])
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let report = std::fs::read_to_string(outputs.join("report.md")).unwrap();
        assert!(report.contains("| alpha | 1 | 3 |"), "{report}");
        let picture = std::fs::read(outputs.join("lines.png")).unwrap();
        assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 200);
        assert!(std::fs::read_to_string(outputs.join("lines.svg")).unwrap().contains("alpha"));
    }
}
