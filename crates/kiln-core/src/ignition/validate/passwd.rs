//! Users and groups.

use super::{Check, items, place, text};
use crate::diagnostic::{Code, Diagnostic};

const NAME: Code = Code(439);

pub(super) fn check(check: &mut Check<'_>) {
    let users = check.list(&["passwd", "users"]);
    let groups = check.list(&["passwd", "groups"]);
    for (list, called) in [(users, "user"), (groups, "group")] {
        for entry in list.iter().filter(|entry| text(entry, "name").is_empty()) {
            check.report(
                Diagnostic::new(NAME, place(entry, "name"), format!("a {called} has no name"))
                    .cause(format!("Ignition accepts the config and then fails to make the {called} at boot"))
                    .help("add `\"name\": \"…\"`"),
            );
        }
    }
    if check.is_v2() {
        return;
    }
    check.unique_by(users, "name", "the user");
    check.unique_by(groups, "name", "the group");
    for user in users {
        check.unique_texts(items(user, "groups"), "the group membership");
        check.unique_texts(items(user, "sshAuthorizedKeys"), "the SSH key");
    }
}
