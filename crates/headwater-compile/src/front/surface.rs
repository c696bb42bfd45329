//! What a layer text says, before it means anything: functions, six kinds of statements, ten kinds of expressions.
//!
//! This is all that the rest knows of the parser. Every node has its place, because every fault is shown at one.

use super::fault::Span;
use super::known::OptionValue;

/// A word and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Name {
    /// The word.
    pub text: String,
    /// Its place.
    pub at: Span,
}

/// One `def`.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: Name,
    /// What stands above it, behind `@`.
    pub decorator: Option<Expression>,
    /// What it takes.
    pub parameters: Vec<Parameter>,
    /// What it does.
    pub body: Vec<Statement>,
}

/// One parameter: `name: annotation = default`.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: Name,
    /// What it is.
    pub annotation: Option<Expression>,
    /// What it is if the caller says nothing.
    pub default: Option<Expression>,
}

/// A statement and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// What it is.
    pub kind: StatementKind,
    /// Its place.
    pub at: Span,
}

/// What can be done.
#[derive(Debug, Clone, PartialEq)]
pub enum StatementKind {
    /// `target = value`
    Assign(Expression, Expression),
    /// `target += value`
    Add(Expression, Expression),
    /// `for variable in over:`
    For(Each, Vec<Statement>),
    /// `if`, every `elif`, and what is done otherwise.
    If(Vec<(Expression, Vec<Statement>)>, Vec<Statement>),
    /// `return value`
    Return(Expression),
    /// An expression by itself.
    Do(Expression),
}

/// An expression and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    /// What it is.
    pub kind: ExpressionKind,
    /// Its place.
    pub at: Span,
}

/// What can be computed.
#[derive(Debug, Clone, PartialEq)]
pub enum ExpressionKind {
    /// A number, a truth, a string.
    Literal(OptionValue),
    /// `name`
    Name(String),
    /// `of.name`
    Attribute(Box<Expression>, Name),
    /// `of[a, b]`
    Index(Box<Expression>, Vec<Expression>),
    /// `from:to`, in an index alone.
    Slice(Option<Box<Expression>>, Option<Box<Expression>>),
    /// `function(arguments)`
    Call(Box<Call>),
    /// `left f right`
    Operator(Operator, Box<Expression>, Box<Expression>),
    /// `f operand`
    Prefix(Prefix, Box<Expression>),
    /// `yes if condition else no`
    Choice(Box<Choice>),
    /// `value for variable in over`
    ForEach(Box<Expression>, Box<Each>),
}

/// The head of a loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Each {
    /// What an element is called.
    pub variable: Name,
    /// Elements.
    pub over: Expression,
}

/// `function(arguments, name=argument)`
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What is called: a name, or an attribute.
    pub function: Expression,
    /// Arguments by position.
    pub arguments: Vec<Expression>,
    /// Arguments by name.
    pub keywords: Vec<(Name, Expression)>,
}

/// `yes if condition else no`
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Decides.
    pub condition: Expression,
    /// If it holds.
    pub yes: Expression,
    /// If not.
    pub no: Expression,
}

/// What stands between two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `//`
    FloorDiv,
    /// `@`
    MatMul,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `and`
    And,
    /// `or`
    Or,
}

/// What stands before an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// `-`
    Minus,
    /// `not`
    Not,
}
