// Package jobstest holds what implementations of the interfaces of
// [berth/jobs] are tested with: one suite of obligations that every scheduler
// runs ([TestScheduler]), and a scheduler in memory that does what a test tells
// it ([FakeScheduler]).
package jobstest
