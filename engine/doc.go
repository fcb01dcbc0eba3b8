// Package engine is the pipeline of a job and berth's Go API. A program begins its main
// function with [Main] and calls [Open]: the examples below do the rest. [Engine.Plan]
// settles a task into a spec, [Engine.Submit] records and hands it over,
// [Engine.Reconcile] brings records up to date with one question to each
// scheduler, [Engine.Wait] waits. The command line calls these and nothing
// else decides.
//
// Each step records what it is about to do before it does it, so that a
// process killed at any point leaves something that the next one can finish: a
// job that was acknowledged is found again, and an unclear submission is
// looked up by name, never repeated.
package engine
