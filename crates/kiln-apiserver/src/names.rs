//! Which names, labels, annotations and finalizers are allowed: the rules of the Kubernetes API, in its words.

const LABEL_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                          alphanumeric character";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                         and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                         validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// What is wrong with an object's name, if anything.
pub fn subdomain_problem(name: &str) -> Option<&'static str> {
    if name.len() > 253 {
        return Some("must be no more than 253 characters");
    }
    (!name.split('.').all(is_label)).then_some(SUBDOMAIN)
}

/// What is wrong with a namespace's name, if anything.
pub fn label_problem(name: &str) -> Option<&'static str> {
    if name.len() > 63 {
        return Some("must be no more than 63 characters");
    }
    (!is_label(name)).then_some(LABEL)
}

/// What is wrong with a label or annotation key or a finalizer, if anything.
pub fn label_key_problem(key: &str) -> Option<&'static str> {
    let name = match key.split_once('/') {
        Some(("", _)) => return Some("prefix part must be non-empty"),
        Some((prefix, name)) => {
            if let Some(why) = subdomain_problem(prefix) {
                return Some(why);
            }
            name
        }
        None => key,
    };
    match name {
        "" => Some("name part must be non-empty"),
        _ if name.len() > 63 => Some("name part must be no more than 63 characters"),
        _ => (!is_label_part(name)).then_some(LABEL_PART),
    }
}

/// What is wrong with a label's value, if anything.
pub fn label_value_problem(value: &str) -> Option<&'static str> {
    if value.len() > 63 {
        return Some("must be no more than 63 characters");
    }
    (!value.is_empty() && !is_label_part(value)).then_some(LABEL_PART)
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_label_part(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && edge(text.bytes().next())
        && edge(text.bytes().last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules() {
        for (name, allowed) in
            [("a", true), ("a.b-c", true), ("A", false), ("a_b", false), ("-a", false), ("a..b", false), ("", false)]
        {
            assert_eq!(subdomain_problem(name).is_none(), allowed, "{name}");
        }
        assert_eq!(label_problem("a.b"), Some(LABEL));
        assert_eq!(subdomain_problem(&"a".repeat(254)), Some("must be no more than 253 characters"));
    }

    #[test]
    fn label_keys_follow_the_rules() {
        for (key, allowed) in [
            ("a", true),
            ("example.org/A_b", true),
            ("/a", false),
            ("example.org/", false),
            ("a/b/c", false),
            ("Example.org/a", false),
        ] {
            assert_eq!(label_key_problem(key).is_none(), allowed, "{key}");
        }
        assert_eq!(label_value_problem(""), None);
        assert_eq!(label_value_problem("a b"), Some(LABEL_PART));
    }
}
