//! From the text of a rule to what can be evaluated within bounds, or to the reason why not.
//!
//! Loops get a counter, optional access (`a.?b`) becomes a function of our own, and names are checked: a rule that
//! would fail on every object is refused with the definition instead.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, SelectExpr, operators,
};
use kube_cel::cel::parser::Parser;

use super::super::{Additional, ListType, Schema, Type};
use super::values::{Expression, OPTIONAL_GET, TICK, TYPES, escape, is_function};
use super::{Compiled, Rule};
use crate::error::Cause;

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

impl Schema {
    /// Compiles every rule; says which cannot be, each with its place below `at`.
    pub fn compile_rules(&mut self, at: &str) -> Vec<Cause> {
        let mut causes = Vec::new();
        compile_node(self, at, None, true, &mut causes);
        causes
    }
}

/// Compiles the rules of a node and below; `uncorrelated` is the list whose items cannot be told apart.
fn compile_node(schema: &mut Schema, at: &str, uncorrelated: Option<&str>, is_root: bool, causes: &mut Vec<Cause>) {
    let mut rules = std::mem::take(&mut schema.rules);
    for (index, rule) in rules.iter_mut().enumerate() {
        let at = format!("{at}.x-kubernetes-validations[{index}]");
        let before = causes.len();
        check_texts(rule, schema, &at, causes);
        if causes.len() == before {
            compile_rule(rule, schema, &at, uncorrelated, is_root, causes);
        }
    }
    schema.rules = rules;
    let mut below = false;
    for (name, child) in &mut schema.properties {
        compile_node(child, &format!("{at}.properties[{name}]"), uncorrelated, child.embedded, causes);
        below |= child.has_rules();
    }
    if let Additional::Each(child) = &mut schema.additional {
        compile_node(child, &format!("{at}.additionalProperties"), uncorrelated, child.embedded, causes);
        below |= child.has_rules();
    }
    let here = if matches!(schema.list, ListType::Map(_)) { uncorrelated } else { uncorrelated.or(Some(at)) };
    if let Some(child) = &mut schema.items {
        compile_node(child, &format!("{at}.items"), here, child.embedded, causes);
        below |= child.has_rules();
    }
    for (index, child) in schema.checks.all_of.iter_mut().enumerate() {
        compile_node(child, &format!("{at}.allOf[{index}]"), uncorrelated, is_root, causes);
        below |= child.has_rules();
    }
    schema.rules_below = below;
}

fn check_texts(rule: &Rule, schema: &Schema, at: &str, causes: &mut Vec<Cause>) {
    let given = |text: &str| serde_json::Value::from(text);
    if rule.text.trim().is_empty() {
        causes.push(Cause::required(format!("{at}.rule"), "rule is not specified"));
    } else if !rule.message.is_empty() && rule.message.trim().is_empty() {
        let why = "must be non-empty if specified";
        causes.push(Cause::invalid(format!("{at}.message"), &given(&rule.message), why));
    } else if rule.message.trim().contains('\n') {
        let why = "must not contain line breaks";
        causes.push(Cause::invalid(format!("{at}.message"), &given(&rule.message), why));
    } else if rule.text.trim().contains('\n') && rule.message.trim().is_empty() {
        let why = "message must be specified if rule contains line breaks";
        causes.push(Cause::required(format!("{at}.message"), why));
    }
    if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        let known: Vec<String> = REASONS.iter().map(|reason| format!("{reason:?}")).collect();
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {reason:?}: supported values: {}", known.join(", ")),
            field: format!("{at}.reason"),
        });
    }
    if !rule.field_path.is_empty() && normal_field_path(schema, &rule.field_path).is_none() {
        causes.push(Cause::invalid(format!("{at}.fieldPath"), &given(&rule.field_path), "must be a valid path"));
    }
}

fn compile_rule(
    rule: &mut Rule,
    schema: &Schema,
    at: &str,
    uncorrelated: Option<&str>,
    is_root: bool,
    causes: &mut Vec<Cause>,
) {
    let mut names =
        Names { schema, is_root, optional_old: rule.takes_optional_old(), scope: Vec::new(), uses_old: false };
    let compiled = match names.compile(&rule.text) {
        Ok(compiled) => compiled,
        Err(why) => {
            let why = format!("compilation failed: {why}");
            causes.push(Cause::invalid(format!("{at}.rule"), &rule.text.as_str().into(), &why));
            return;
        }
    };
    let kind = names.schema_of(&compiled).and_then(|(schema, _)| schema.kind);
    if kind.is_some_and(|kind| kind != Type::Boolean) || matches!(compiled.expr, Expr::List(_) | Expr::Map(_)) {
        let why = "cel expression must evaluate to a bool";
        causes.push(Cause::invalid(format!("{at}.rule"), &rule.text.as_str().into(), why));
        return;
    }
    let uses_old = names.uses_old;
    let message = match rule.message_text.trim() {
        "" => None,
        text => match names.compile(text) {
            Ok(message) => Some(message),
            Err(why) => {
                let why = format!("messageExpression compilation failed: {why}");
                causes.push(Cause::invalid(format!("{at}.messageExpression"), &text.into(), &why));
                return;
            }
        },
    };
    if let Some(list) = uncorrelated.filter(|_| uses_old) {
        let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
        causes.push(Cause::invalid(format!("{at}.rule"), &rule.text.as_str().into(), &why));
    }
    if let Some(optional) = rule.optional_old.filter(|_| !uses_old) {
        let why = "may not be set if oldSelf is not used in rule";
        causes.push(Cause::invalid(format!("{at}.optionalOldSelf"), &optional.into(), why));
    }
    let at = normal_field_path(schema, &rule.field_path).unwrap_or_default();
    rule.compiled = Some(Compiled { rule: compiled, message, uses_old, at });
}

/// `.a.b['c']` as messages write it, if the schema has such a field.
fn normal_field_path(schema: &Schema, path: &str) -> Option<String> {
    let (mut text, mut node, mut rest) = (String::new(), schema, path.trim());
    while !rest.is_empty() {
        let name;
        if let Some(after) = rest.strip_prefix("['") {
            let end = after.find("']")?;
            name = after[..end].replace("\\'", "'");
            rest = &after[end + 2..];
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[']).unwrap_or(after.len());
            name = after[..end].to_owned();
            rest = &after[end..];
        }
        if node.properties.is_empty() {
            let Additional::Each(each) = &node.additional else { return None };
            text.push_str(&format!("[{name}]"));
            node = each;
        } else {
            node = node.properties.get(&name)?;
            let dot = if text.is_empty() { "" } else { "." };
            text.push_str(&format!("{dot}{name}"));
        }
    }
    Some(text)
}

/// What a rule may name.
struct Names<'a> {
    schema: &'a Schema,
    is_root: bool,
    optional_old: bool,
    scope: Vec<String>,
    uses_old: bool,
}

impl Names<'_> {
    fn compile(&mut self, text: &str) -> Result<Expression, String> {
        let parser = Parser::new().enable_optional_syntax(true);
        let mut expression = parser.parse(text.trim()).map_err(|errors| errors.to_string())?;
        self.prepare(&mut expression)?;
        Ok(expression)
    }

    fn prepare(&mut self, node: &mut IdedExpr) -> Result<(), String> {
        match &mut node.expr {
            Expr::Literal(_) => Ok(()),
            Expr::Unspecified => Err("an expression is missing".into()),
            Expr::Struct(literal) => Err(format!("undeclared reference to '{}'", literal.type_name)),
            Expr::Ident(name) => self.prepare_name(name),
            Expr::Select(select) => {
                if let Some(name) = dotted(select).filter(|name| TYPES.contains(&name.as_str())) {
                    node.expr = Expr::Ident(name);
                    return Ok(());
                }
                self.prepare(&mut select.operand)?;
                if self.is_optional(&select.operand) && !select.test {
                    let SelectExpr { operand, field, .. } = std::mem::take(select);
                    node.expr = call(OPTIONAL_GET, vec![*operand, literal(&field)]);
                    return Ok(());
                }
                match self.schema_of(&select.operand) {
                    Some((schema, is_resource)) if lacks(schema, is_resource, &select.field) => {
                        Err(format!("undefined field '{}'", select.field))
                    }
                    _ => Ok(()),
                }
            }
            Expr::Call(_) => self.prepare_call(node),
            Expr::Comprehension(comprehension) => self.prepare_loop(comprehension),
            Expr::List(ListExpr { elements, .. }) => elements.iter_mut().try_for_each(|element| self.prepare(element)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.prepare(&mut entry.key)?;
                    self.prepare(&mut entry.value)
                }
                EntryExpr::StructField(field) => self.prepare(&mut field.value),
            }),
        }
    }

    fn prepare_name(&mut self, name: &str) -> Result<(), String> {
        if self.scope.iter().any(|known| known == name) || name == "self" || TYPES.contains(&name) {
            return Ok(());
        }
        if name == "oldSelf" {
            self.uses_old = true;
            return Ok(());
        }
        Err(format!("undeclared reference to '{name}' (in container '')"))
    }

    fn prepare_call(&mut self, node: &mut IdedExpr) -> Result<(), String> {
        let Expr::Call(called) = &mut node.expr else { return Ok(()) };
        let library = match called.target.as_deref() {
            Some(IdedExpr { expr: Expr::Ident(name), .. }) => Some(name.clone()),
            _ => None,
        };
        let CallExpr { func_name, target, args } = called;
        match (library.as_deref(), func_name.as_str(), args.as_mut_slice()) {
            (Some("cel"), "bind", [IdedExpr { expr: Expr::Ident(name), .. }, value, result]) => {
                let bound = bind(name, std::mem::take(value), std::mem::take(result));
                node.expr = bound;
                return self.prepare(node);
            }
            (_, kind @ ("optMap" | "optFlatMap"), [IdedExpr { expr: Expr::Ident(name), .. }, result]) => {
                let from = target.take().map(|target| *target).unwrap_or_default();
                let mut mapped = std::mem::take(result);
                if kind == "optMap" {
                    mapped = node_of(qualified("optional", "of", vec![mapped]));
                }
                let there = node_of(method(from.clone(), "hasValue"));
                let value = node_of(method(from, "value"));
                let bound = node_of(bind(name, value, mapped));
                let nothing = node_of(qualified("optional", "none", Vec::new()));
                node.expr = call(operators::CONDITIONAL, vec![there, bound, nothing]);
                return self.prepare(node);
            }
            _ => {}
        }
        let is_qualified = library.as_ref().is_some_and(|library| is_function(&format!("{library}.{func_name}")));
        if let Some(target) = target.as_deref_mut().filter(|_| !is_qualified) {
            self.prepare(target)?;
        }
        args.iter_mut().try_for_each(|argument| self.prepare(argument))?;
        let index_of_optional =
            func_name == operators::INDEX && args.first().is_some_and(|operand| self.is_optional(operand));
        if [operators::OPT_SELECT, operators::OPT_INDEX].contains(&func_name.as_str()) || index_of_optional {
            *func_name = OPTIONAL_GET.into();
            return Ok(());
        }
        let is_operator = !func_name.starts_with(|first: char| first.is_alphabetic());
        if is_operator || is_qualified || is_function(func_name) {
            return Ok(());
        }
        Err(format!("undeclared reference to '{func_name}' (in container '')"))
    }

    fn prepare_loop(&mut self, comprehension: &mut ComprehensionExpr) -> Result<(), String> {
        let ComprehensionExpr { iter_range, iter_var, iter_var2, accu_var, accu_init, loop_cond, loop_step, result } =
            comprehension;
        self.prepare(iter_range)?;
        self.prepare(accu_init)?;
        let outer = self.scope.len();
        self.scope.extend([iter_var.clone(), accu_var.clone()]);
        self.scope.extend(iter_var2.clone());
        let inside = [&mut *loop_cond, loop_step, result].into_iter().try_for_each(|part| self.prepare(part));
        self.scope.truncate(outer);
        inside?;
        let turn = node_of(call(TICK, Vec::new()));
        let condition = std::mem::take(loop_cond);
        let end = node_of(Expr::Literal(LiteralValue::Boolean(false.into())));
        *loop_cond = node_of(call(operators::CONDITIONAL, vec![turn, condition, end]));
        Ok(())
    }

    /// Whether the value is known to be an optional one.
    fn is_optional(&self, node: &IdedExpr) -> bool {
        match &node.expr {
            Expr::Ident(name) => name == "oldSelf" && self.optional_old,
            Expr::Call(called) => {
                called.func_name == OPTIONAL_GET
                    || matches!(called.target.as_deref(), Some(IdedExpr { expr: Expr::Ident(library), .. }) if library == "optional")
            }
            _ => false,
        }
    }

    /// The schema of what a chain of fields from `self` leads to.
    fn schema_of(&self, node: &IdedExpr) -> Option<(&Schema, bool)> {
        match &node.expr {
            Expr::Ident(name) if self.scope.iter().any(|known| known == name) => None,
            Expr::Ident(name) if name == "self" || (name == "oldSelf" && !self.optional_old) => {
                Some((self.schema, self.is_root))
            }
            Expr::Select(select) => {
                let (schema, is_resource) = self.schema_of(&select.operand)?;
                if is_resource && select.field == "metadata" {
                    return None;
                }
                let (_, below) = schema.properties.iter().find(|(name, _)| escape(name) == select.field)?;
                Some((below, below.embedded))
            }
            _ => None,
        }
    }
}

/// Whether objects of the schema can never have this field.
fn lacks(schema: &Schema, is_resource: bool, field: &str) -> bool {
    schema.kind == Some(Type::Object)
        && !schema.preserve_unknown
        && matches!(schema.additional, Additional::None)
        && !(is_resource && ["apiVersion", "kind", "metadata"].contains(&field))
        && !schema.properties.keys().any(|name| escape(name) == field)
}

/// `a.b.c`, if it is nothing but names.
fn dotted(select: &SelectExpr) -> Option<String> {
    let above = match &select.operand.expr {
        Expr::Ident(name) => name.clone(),
        Expr::Select(above) => dotted(above)?,
        _ => return None,
    };
    (!select.test).then(|| format!("{above}.{}", select.field))
}

fn node_of(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn literal(text: &str) -> IdedExpr {
    node_of(Expr::Literal(LiteralValue::String(text.into())))
}

fn call(name: &str, args: Vec<IdedExpr>) -> Expr {
    Expr::Call(CallExpr { func_name: name.into(), target: None, args })
}

fn method(target: IdedExpr, name: &str) -> Expr {
    Expr::Call(CallExpr { func_name: name.into(), target: Some(Box::new(target)), args: Vec::new() })
}

fn qualified(library: &str, name: &str, args: Vec<IdedExpr>) -> Expr {
    let target = Some(Box::new(node_of(Expr::Ident(library.into()))));
    Expr::Call(CallExpr { func_name: name.into(), target, args })
}

/// `result` with `name` standing for `value`: a loop over nothing that starts with it.
fn bind(name: &str, value: IdedExpr, result: IdedExpr) -> Expr {
    Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: node_of(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: "@unused".into(),
        iter_var2: None,
        accu_var: name.into(),
        accu_init: value,
        loop_cond: node_of(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: node_of(Expr::Ident(name.into())),
        result,
    }))
}
