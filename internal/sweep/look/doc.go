// Package look is what one does with a sweep once its tasks have run: rows of tasks
// with their parameters and results, conditions over them, failures in groups, tables
// of what they have found, reports and comparisons. It reads what others have written,
// of which it trusts no size and no text.
package look
