// Package private knows which places of a machine are this user's alone and are
// hidden from every container, and makes directories of that kind.
package private
