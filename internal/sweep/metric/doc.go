// Package metric is what a task of a sweep tells of itself: lines NAME=VALUE in the file that a
// variable names. The program berth in a container writes them, and so does `berth metric`.
package metric
