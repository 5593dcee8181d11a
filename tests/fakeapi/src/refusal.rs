//! What a request is refused with: the `Status` that a real API server would send.

use serde_json::{Value, json};

/// A refused request.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    reason: &'static str,
    message: String,
    /// Reason, field and message of each.
    causes: Vec<Value>,
    details: Value,
}

impl Refusal {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), causes: Vec::new(), details: json!({}) }
    }

    /// The request makes no sense.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// The path is not served: answered in plain text.
    pub(crate) fn no_such_path() -> Self {
        Self::new(404, "", "404 page not found\n")
    }

    pub(crate) fn no_such_object(resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    pub(crate) fn exists(resource: &str, name: &str) -> Self {
        let message = format!("{resource} \"{name}\" already exists");
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    /// The object is not what the request takes it for.
    pub(crate) fn conflict(resource: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// The object would be invalid.
    pub(crate) fn invalid(resource: &str, name: &str, field: &str, why: &str) -> Self {
        let message = format!("{resource} \"{name}\" is invalid: {field}: {why}");
        let refusal = Self::new(422, "Invalid", message).about(resource, name);
        refusal.because("FieldValueForbidden", field, why)
    }

    /// The version asked for is no longer kept.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn because(mut self, reason: &str, field: &str, message: &str) -> Self {
        self.causes.push(json!({"reason": reason, "field": field, "message": message}));
        self
    }

    fn about(mut self, resource: &str, name: &str) -> Self {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        self.details = json!({"name": name, "group": group, "kind": plural});
        self
    }

    /// As an object of a watch.
    pub(crate) fn status(&self) -> Value {
        let mut details = self.details.clone();
        if !self.causes.is_empty() {
            details["causes"] = json!(self.causes);
        }
        json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "code": self.code, "reason": self.reason, "message": self.message, "details": details,
        })
    }

    /// As the body of an answer.
    pub(crate) fn body(&self) -> String {
        if self.reason.is_empty() { self.message.clone() } else { self.status().to_string() }
    }
}
