//! Python text as [`surface`](super::surface) has it: the only file that knows the parser, ruff's.
//!
//! The text is data; nothing of it is run. What is Python and no layer is refused here, with what was expected. Trees
//! are freed recursively, so texts that would nest deeply are refused before they are parsed.

use ruff_python_ast as ast;
use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, lexer, parse_module};
use ruff_text_size::{Ranged, TextRange};

use super::fault::{Outcome, Span};
use super::known::OptionValue;
use super::surface::{
    Call, Choice, Each, Expression, ExpressionKind, Function, Name, Operator, Parameter, Prefix, Statement,
    StatementKind,
};

/// Bytes that a text has at most.
const MOST_BYTES: usize = 1 << 20;
/// Words and signs that a statement has at most, without the block below it.
const MOST_TOKENS: usize = 2000;
/// Blocks or expressions in each other at most.
const MOST_DEPTH: usize = 64;
/// Bytes that a word or a string has at most.
const MOST_NAME_BYTES: usize = 128;

/// All functions of a text, in order.
pub fn parse(text: &str) -> Outcome<Vec<Function>> {
    check_extent(text)?;
    let parsed =
        parse_module(text).map_err(|error| span(error.location).fault(lower_first(&error.error.to_string())))?;
    let mut functions: Vec<Function> = Vec::new();
    for statement in &parsed.syntax().body {
        match statement {
            ast::Stmt::FunctionDef(def) => functions.push(function(def)?),
            other if says_nothing(other) => {}
            other => return Err(span(other.range()).fault("expected `def`: a text is a list of functions")),
        }
    }
    Ok(functions)
}

/// Whether a text can be parsed and its tree be freed without a deep stack.
fn check_extent(text: &str) -> Outcome<()> {
    if text.len() > MOST_BYTES {
        let why = format!("the text has {} bytes; expected at most {MOST_BYTES}", text.len());
        return Err(Span::default().fault(why));
    }
    let mut lexer = lexer::lex(text, Mode::Module);
    let (mut line, mut first_line, mut tokens, mut blocks) = (0, 0, 0, 0_usize);
    loop {
        match lexer.next_token() {
            TokenKind::EndOfFile => return Ok(()),
            TokenKind::Newline => (line, first_line, tokens) = (line + 1, line + 1, 0),
            TokenKind::NonLogicalNewline => line += 1,
            TokenKind::Indent => blocks += 1,
            TokenKind::Dedent => blocks = blocks.saturating_sub(1),
            _ => tokens += 1,
        }
        if tokens > MOST_TOKENS {
            let why = format!("expected at most {MOST_TOKENS} words in a statement; is a bracket left open?");
            return Err(line_span(text, first_line).fault(why));
        }
        if blocks > MOST_DEPTH {
            return Err(line_span(text, line).fault(too_deep()));
        }
    }
}

/// Where a line stands. Lines inside of strings are not counted, so it may come early.
fn line_span(text: &str, line: usize) -> Span {
    let start = text.split_inclusive('\n').take(line).map(str::len).sum();
    let end = text[start..].find('\n').map_or(text.len(), |length| start + length);
    Span { start, end }
}

fn function(def: &ast::StmtFunctionDef) -> Outcome<Function> {
    let at = span(def.name.range());
    if def.is_async || def.type_params.is_some() {
        return Err(at.fault("expected a plain `def`"));
    }
    if let Some(returns) = &def.returns {
        return Err(span(returns.range()).fault("expected `:`: what a function returns follows from what it computes"));
    }
    let decorator = match &def.decorator_list[..] {
        [] => None,
        [one] => Some(expression(&one.expression, 0)?),
        [_, second, ..] => return Err(span(second.range()).fault("expected one decorator, `@layer`")),
    };
    let body = block(&def.body, 0)?;
    Ok(Function { name: name(&def.name)?, decorator, parameters: parameters(&def.parameters)?, body })
}

fn parameters(list: &ast::Parameters) -> Outcome<Vec<Parameter>> {
    if let Some(starred) = list.vararg.as_ref().or(list.kwarg.as_ref()) {
        return Err(span(starred.range()).fault("expected a parameter with a name"));
    }
    let all = list.posonlyargs.iter().chain(&list.args).chain(&list.kwonlyargs);
    let one = |given: &ast::ParameterWithDefault| {
        let optional = |e: Option<&ast::Expr>| e.map(|e| expression(e, 0)).transpose();
        Ok(Parameter {
            name: name(&given.parameter.name)?,
            annotation: optional(given.parameter.annotation.as_deref())?,
            default: optional(given.default.as_deref())?,
        })
    };
    all.map(one).collect()
}

/// `pass` and strings by themselves.
fn says_nothing(statement: &ast::Stmt) -> bool {
    match statement {
        ast::Stmt::Pass(_) => true,
        ast::Stmt::Expr(alone) => alone.value.is_string_literal_expr(),
        _ => false,
    }
}

fn block(statements: &[ast::Stmt], depth: usize) -> Outcome<Vec<Statement>> {
    let said = statements.iter().filter(|statement| !says_nothing(statement));
    said.map(|one| Ok(Statement { kind: statement(one, depth)?, at: span(one.range()) })).collect()
}

fn statement(statement: &ast::Stmt, depth: usize) -> Outcome<StatementKind> {
    let at = span(statement.range());
    if depth > MOST_DEPTH {
        return Err(at.fault(too_deep()));
    }
    let inner = depth + 1;
    match statement {
        ast::Stmt::Assign(assign) => match &assign.targets[..] {
            [target] => Ok(StatementKind::Assign(expression(target, 0)?, expression(&assign.value, 0)?)),
            _ => Err(at.fault("expected one name to assign to")),
        },
        ast::Stmt::AugAssign(add) if add.op == ast::Operator::Add => {
            Ok(StatementKind::Add(expression(&add.target, 0)?, expression(&add.value, 0)?))
        }
        ast::Stmt::AugAssign(_) => Err(at.fault("expected `=` or `+=`")),
        ast::Stmt::For(each) if !each.is_async && each.orelse.is_empty() => {
            Ok(StatementKind::For(loop_head(&each.target, &each.iter, 0)?, block(&each.body, inner)?))
        }
        ast::Stmt::For(_) => Err(at.fault("expected a plain `for`, without `async` or `else`")),
        ast::Stmt::If(choice) => branches(choice, inner),
        ast::Stmt::Return(back) => match &back.value {
            Some(value) => Ok(StatementKind::Return(expression(value, 0)?)),
            None => Err(at.fault("expected a value behind `return`")),
        },
        ast::Stmt::Expr(alone) => Ok(StatementKind::Do(expression(&alone.value, 0)?)),
        _ => Err(at.fault("expected an assignment, `for`, `if`, `return` or a call")),
    }
}

fn branches(choice: &ast::StmtIf, depth: usize) -> Outcome<StatementKind> {
    let mut branches = vec![(expression(&choice.test, 0)?, block(&choice.body, depth)?)];
    let mut otherwise = Vec::new();
    for clause in &choice.elif_else_clauses {
        match &clause.test {
            Some(test) => branches.push((expression(test, 0)?, block(&clause.body, depth)?)),
            None => otherwise = block(&clause.body, depth)?,
        }
    }
    Ok(StatementKind::If(branches, otherwise))
}

fn loop_head(target: &ast::Expr, over: &ast::Expr, depth: usize) -> Outcome<Each> {
    let ast::Expr::Name(variable) = target else {
        return Err(span(target.range()).fault("expected one name for the elements"));
    };
    let variable = Name { text: word(variable.id.as_str(), variable.range)?, at: span(variable.range) };
    Ok(Each { variable, over: expression(over, depth)? })
}

fn expression(e: &ast::Expr, depth: usize) -> Outcome<Expression> {
    let at = span(e.range());
    if depth > MOST_DEPTH {
        return Err(at.fault(too_deep()));
    }
    Ok(Expression { kind: expression_kind(e, depth + 1)?, at })
}

fn expression_kind(e: &ast::Expr, depth: usize) -> Outcome<ExpressionKind> {
    let at = span(e.range());
    let boxed = |e: &ast::Expr| expression(e, depth).map(Box::new);
    match e {
        ast::Expr::NumberLiteral(literal) => number(&literal.value, at).map(ExpressionKind::Literal),
        ast::Expr::BooleanLiteral(literal) => Ok(ExpressionKind::Literal(OptionValue::Bool(literal.value))),
        ast::Expr::StringLiteral(literal) => {
            Ok(ExpressionKind::Literal(OptionValue::Text(word(literal.value.to_str(), literal.range)?)))
        }
        ast::Expr::Name(name) => Ok(ExpressionKind::Name(word(name.id.as_str(), name.range)?)),
        ast::Expr::Attribute(of) => Ok(ExpressionKind::Attribute(boxed(&of.value)?, name(&of.attr)?)),
        ast::Expr::Subscript(of) => {
            let indices = match &*of.slice {
                ast::Expr::Tuple(tuple) => tuple.elts.iter().map(|e| expression(e, depth)).collect::<Outcome<_>>()?,
                one => vec![expression(one, depth)?],
            };
            Ok(ExpressionKind::Index(boxed(&of.value)?, indices))
        }
        ast::Expr::Slice(slice) if slice.step.is_none() => {
            let end = |e: Option<&ast::Expr>| e.map(boxed).transpose();
            Ok(ExpressionKind::Slice(end(slice.lower.as_deref())?, end(slice.upper.as_deref())?))
        }
        ast::Expr::Slice(_) => Err(at.fault("expected a slice without a step")),
        ast::Expr::Call(call) => Ok(ExpressionKind::Call(Box::new(self::call(call, depth)?))),
        ast::Expr::BinOp(two) => {
            Ok(ExpressionKind::Operator(arithmetic(two.op, at)?, boxed(&two.left)?, boxed(&two.right)?))
        }
        ast::Expr::BoolOp(all) => logic(all, depth),
        ast::Expr::Compare(compare) => comparison(compare, depth),
        ast::Expr::UnaryOp(one) => match one.op {
            ast::UnaryOp::USub => Ok(ExpressionKind::Prefix(Prefix::Minus, boxed(&one.operand)?)),
            ast::UnaryOp::Not => Ok(ExpressionKind::Prefix(Prefix::Not, boxed(&one.operand)?)),
            _ => Err(at.fault("expected `-` or `not`")),
        },
        ast::Expr::If(choice) => Ok(ExpressionKind::Choice(Box::new(Choice {
            condition: expression(&choice.test, depth)?,
            yes: expression(&choice.body, depth)?,
            no: expression(&choice.orelse, depth)?,
        }))),
        ast::Expr::Generator(all) => for_each(all, depth),
        _ => Err(at.fault("expected a number, a name, a call, an operator or `v for e in n.incoming_edges()`")),
    }
}

fn call(call: &ast::ExprCall, depth: usize) -> Outcome<Call> {
    let keyword = |given: &ast::Keyword| match &given.arg {
        Some(arg) => Ok((name(arg)?, expression(&given.value, depth)?)),
        None => Err(span(given.range()).fault("expected arguments one by one")),
    };
    // Where Python itself runs the `def`, conditions on what the text alone knows wait behind a `lambda`.
    let is_when = matches!(&*call.func, ast::Expr::Name(name) if name.id.as_str() == "when");
    let argument = |e: &ast::Expr| match e {
        ast::Expr::Lambda(later) if is_when && later.parameters.is_none() => expression(&later.body, depth),
        _ => expression(e, depth),
    };
    Ok(Call {
        function: expression(&call.func, depth)?,
        arguments: call.arguments.args.iter().map(argument).collect::<Outcome<_>>()?,
        keywords: call.arguments.keywords.iter().map(keyword).collect::<Outcome<_>>()?,
    })
}

fn for_each(all: &ast::ExprGenerator, depth: usize) -> Outcome<ExpressionKind> {
    match &all.generators[..] {
        [one] if one.ifs.is_empty() && !one.is_async => {
            let each = loop_head(&one.target, &one.iter, depth)?;
            Ok(ExpressionKind::ForEach(Box::new(expression(&all.elt, depth)?), Box::new(each)))
        }
        _ => Err(span(all.range).fault("expected one `for` without `if`: `v for e in n.incoming_edges()`")),
    }
}

fn arithmetic(op: ast::Operator, at: Span) -> Outcome<Operator> {
    match op {
        ast::Operator::Add => Ok(Operator::Add),
        ast::Operator::Sub => Ok(Operator::Sub),
        ast::Operator::Mult => Ok(Operator::Mul),
        ast::Operator::Div => Ok(Operator::Div),
        ast::Operator::FloorDiv => Ok(Operator::FloorDiv),
        ast::Operator::MatMult => Ok(Operator::MatMul),
        _ => Err(at.fault("expected one of + - * / // @")),
    }
}

fn logic(all: &ast::ExprBoolOp, depth: usize) -> Outcome<ExpressionKind> {
    let f = match all.op {
        ast::BoolOp::And => Operator::And,
        ast::BoolOp::Or => Operator::Or,
    };
    let at = span(all.range);
    let operands = all.values.iter().map(|e| expression(e, depth)).collect::<Outcome<Vec<_>>>()?;
    if operands.len() > MOST_DEPTH {
        return Err(at.fault(too_deep()));
    }
    let join =
        |left: Expression, right| Expression { kind: ExpressionKind::Operator(f, Box::new(left), Box::new(right)), at };
    let joined = operands.into_iter().reduce(join).ok_or_else(|| at.fault("expected two operands"))?;
    Ok(joined.kind)
}

fn comparison(compare: &ast::ExprCompare, depth: usize) -> Outcome<ExpressionKind> {
    let at = span(compare.range);
    let ([op], [right]) = (&compare.ops[..], &compare.comparators[..]) else {
        return Err(at.fault("expected one comparison; join several by `and`"));
    };
    let f = match op {
        ast::CmpOp::Eq => Operator::Equal,
        ast::CmpOp::NotEq => Operator::NotEqual,
        ast::CmpOp::Lt => Operator::Less,
        ast::CmpOp::LtE => Operator::AtMost,
        ast::CmpOp::Gt => Operator::Greater,
        ast::CmpOp::GtE => Operator::AtLeast,
        _ => return Err(at.fault("expected one of == != < <= > >=")),
    };
    let left = Box::new(expression(&compare.left, depth)?);
    Ok(ExpressionKind::Operator(f, left, Box::new(expression(right, depth)?)))
}

fn number(value: &ast::Number, at: Span) -> Outcome<OptionValue> {
    match value {
        ast::Number::Int(number) => {
            let number = number.as_i64().ok_or_else(|| at.fault("expected a whole number below 2^63"))?;
            Ok(OptionValue::Int(number))
        }
        ast::Number::Float(number) if number.is_finite() => Ok(OptionValue::Float(*number)),
        _ => Err(at.fault("expected a real, finite number")),
    }
}

fn name(identifier: &ast::Identifier) -> Outcome<Name> {
    Ok(Name { text: word(identifier.as_str(), identifier.range)?, at: span(identifier.range) })
}

/// A word that is short enough to be looked up often.
fn word(text: &str, range: TextRange) -> Outcome<String> {
    if text.len() > MOST_NAME_BYTES {
        return Err(span(range).fault(format!("expected at most {MOST_NAME_BYTES} bytes in a name or a string")));
    }
    Ok(text.to_owned())
}

fn span(range: TextRange) -> Span {
    Span { start: range.start().to_usize(), end: range.end().to_usize() }
}

fn too_deep() -> String {
    format!("nested too deeply; expected at most {MOST_DEPTH} levels")
}

/// Messages go on after a colon.
fn lower_first(message: &str) -> String {
    let mut rest = message.chars();
    rest.next().map_or_else(String::new, |first| first.to_lowercase().chain(rest).collect())
}
