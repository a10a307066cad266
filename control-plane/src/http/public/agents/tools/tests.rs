//! Which entries of `tools` are taken, and what they resolve to.

use super::*;
use checkfu_shared::problem::Code;

fn read(tools: Value, dialect: Dialect) -> Result<Value, Problem> {
    let mut fields = Fields::body(json!({ "tools": tools }), dialect).unwrap();
    Ok(json!(take(&mut fields)?))
}

fn custom_tool(name: &str) -> Value {
    json!({"type": "custom", "name": name, "description": "d", "input_schema": {"type": "object"}})
}

#[test]
fn an_omitted_policy_is_always_allow_for_the_sdk_and_no_rule_for_us() {
    let entry = json!([{"type": tool::TOOLSET, "configs": [{"name": "bash"}]}]);
    let allow = json!({"type": "always_allow"});
    assert_eq!(
        read(entry.clone(), Dialect::Sdk).unwrap(),
        json!([{
            "type": tool::TOOLSET,
            "default_config": {"enabled": true, "permission_policy": allow},
            "configs": [{"name": "bash", "type": "bash", "enabled": true, "permission_policy": allow}],
        }])
    );
    assert_eq!(
        read(entry, Dialect::Checkfu).unwrap(),
        json!([{
            "type": tool::TOOLSET,
            "default_config": {"enabled": true},
            "configs": [{"name": "bash", "type": "bash", "enabled": true}],
        }])
    );
}

#[test]
fn an_exception_inherits_what_it_leaves_out() {
    let ask = json!({"type": "always_ask"});
    let entry = json!([{
        "type": tool::TOOLSET,
        "default_config": {"enabled": false, "permission_policy": ask},
        "configs": [{"name": "read", "enabled": true}],
    }]);
    let read = read(entry, Dialect::Sdk).unwrap();
    assert_eq!(
        read[0]["configs"][0],
        json!({"name": "read", "type": "read", "enabled": true, "permission_policy": ask})
    );
}

#[test]
fn bad_entries_are_refused() {
    let toolset = json!({"type": tool::TOOLSET});
    let with = |member: &str, value: Value| {
        let mut tool = custom_tool("good");
        tool[member] = value;
        json!([tool])
    };
    for bad in [
        json!("x"),
        json!([1]),
        json!([{}]),
        json!([{"type": "nope"}]),
        json!([toolset, toolset]),
        json!([custom_tool("bash")]),
        json!([custom_tool("web_search")]),
        json!([custom_tool("mcp__x")]),
        json!([custom_tool("sp ace")]),
        json!([custom_tool("")]),
        json!([custom_tool(&"n".repeat(129))]),
        json!([custom_tool("a"), custom_tool("a")]),
        with("description", json!("")),
        with("input_schema", Value::Null),
        with("input_schema", json!({"type": "object", "properties": {"a": {"$ref": "#/x"}}})),
        json!([{"type": tool::TOOLSET, "configs": [{"name": "nope"}]}]),
        json!([{"type": tool::TOOLSET, "configs": [{"name": "read"}, {"name": "read"}]}]),
        json!([{"type": tool::TOOLSET, "configs": [{"name": "read", "type": "bash"}]}]),
        json!([{"type": tool::TOOLSET, "default_config": {"permission_policy": {"type": "never"}}}]),
    ] {
        let problem = read(bad.clone(), Dialect::Sdk).unwrap_err();
        assert_eq!(problem.code, Code::InvalidRequest, "{bad}");
    }
    assert_eq!(read(json!([custom_tool("Good-1_x")]), Dialect::Checkfu).unwrap()[0]["name"], "Good-1_x");
}

#[test]
fn what_is_not_there_yet_says_so() {
    for entry in [
        json!([{"type": tool::TOOLSET, "configs": [{"name": "web_search", "enabled": true}]}]),
        json!([{"type": tool::TOOLSET, "default_config": {"permission_policy": {"type": "auto"}}}]),
    ] {
        assert_eq!(read(entry, Dialect::Sdk).unwrap_err().code, Code::Unsupported);
    }
    assert!(
        read(json!([{"type": tool::TOOLSET, "configs": [{"name": "web_search"}]}]), Dialect::Sdk).is_ok()
    );
}
