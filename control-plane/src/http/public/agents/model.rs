//! The `model` of an agent: a name, or a name with how hard and how fast it works.

use crate::http::fields::{Fields, wrong};
use checkfu_shared::{
    agent::{Effort, EffortSetting, Model},
    problem::Problem,
};
use serde_json::Value;

const EFFORTS: &str = "minimal, low, medium, high, max";

/// Takes `model`. An `effort` that is left out survives from `old` when the model stays the same.
///
/// # Errors
/// `invalid_request` when it breaks a rule.
pub(crate) fn take(fields: &mut Fields, old: Option<&Model>) -> Result<Option<Model>, Problem> {
    let path = fields.path("model");
    match fields.raw("model") {
        None => Ok(None),
        Some(Value::String(id)) => plain(id, &path, old).map(Some),
        Some(value @ Value::Object(_)) => {
            configured(Fields::of(value, &path, fields.dialect())?, old).map(Some)
        }
        Some(_) => Err(wrong(&path, "must be a model name or an object with `id`")),
    }
}

fn plain(id: String, path: &str, old: Option<&Model>) -> Result<Model, Problem> {
    if !(1..=256).contains(&id.chars().count()) {
        return Err(wrong(path, "must have 1 to 256 characters"));
    }
    let effort = surviving_effort(&id, old);
    Ok(Model { id, effort, inference_geo: None, speed: Some("standard".to_owned()) })
}

fn configured(mut fields: Fields, old: Option<&Model>) -> Result<Model, Problem> {
    let id = fields.required_text("id", 1, 256)?;
    let effort = if fields.has("effort") { effort(&mut fields)? } else { surviving_effort(&id, old) };
    let speed = fields.text("speed")?.unwrap_or_else(|| "standard".to_owned());
    if !["standard", "fast"].contains(&speed.as_str()) {
        return Err(wrong(&fields.path("speed"), "must be standard or fast"));
    }
    let inference_geo = fields.bounded_text("inference_geo", 64)?;
    fields.end()?;
    Ok(Model { id, effort, inference_geo, speed: Some(speed) })
}

fn surviving_effort(id: &str, old: Option<&Model>) -> Option<EffortSetting> {
    old.filter(|old| old.id == id).and_then(|old| old.effort)
}

fn effort(fields: &mut Fields) -> Result<Option<EffortSetting>, Problem> {
    let path = fields.path("effort");
    let level = match fields.value("effort") {
        None => return Ok(None),
        Some(Value::String(level)) => level,
        Some(value) => {
            let mut inner = Fields::of(value, &path, fields.dialect())?;
            let level = inner.required_text("type", 1, 64)?;
            inner.end()?;
            level
        }
    };
    let level = match level.as_str() {
        "minimal" => Effort::Minimal,
        "low" => Effort::Low,
        "medium" => Effort::Medium,
        "high" => Effort::High,
        "max" => Effort::Max,
        _ => return Err(wrong(&path, &format!("must be one of {EFFORTS}"))),
    };
    Ok(Some(EffortSetting { level }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::auth::Dialect;
    use serde_json::json;

    fn read(model: Value, old: Option<&Model>) -> Result<Value, Problem> {
        let mut fields = Fields::body(json!({ "model": model }), Dialect::Checkfu).unwrap();
        Ok(json!(take(&mut fields, old)?))
    }

    #[test]
    fn every_form_comes_back_as_an_object_with_its_speed() {
        let plain = json!({"id": "m", "effort": null, "inference_geo": null, "speed": "standard"});
        assert_eq!(read(json!("m"), None), Ok(plain));
        for effort in [json!("low"), json!({"type": "low"})] {
            let want = json!({"id": "m", "effort": {"type": "low"}, "inference_geo": null, "speed": "fast"});
            assert_eq!(read(json!({"id": "m", "effort": effort, "speed": "fast"}), None), Ok(want));
        }
    }

    #[test]
    fn an_effort_outside_the_scale_is_refused_naming_the_scale() {
        let problem = read(json!({"id": "m", "effort": "xhigh"}), None).unwrap_err();
        assert!(problem.message.contains(EFFORTS), "{}", problem.message);
        for bad in [
            json!(null),
            json!(3),
            json!(""),
            json!({}),
            json!({"id": "m", "speed": "warp"}),
            json!({"id": "m", "x": 1}),
        ] {
            assert!(read(bad.clone(), None).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_effort_left_out_survives_as_long_as_the_model_stays() {
        let old: Model = serde_json::from_value(json!({"id": "m", "effort": {"type": "high"}})).unwrap();
        assert_eq!(read(json!("m"), Some(&old)).unwrap()["effort"], json!({"type": "high"}));
        assert_eq!(read(json!({"id": "m", "effort": null}), Some(&old)).unwrap()["effort"], Value::Null);
        assert_eq!(read(json!("n"), Some(&old)).unwrap()["effort"], Value::Null);
    }
}
