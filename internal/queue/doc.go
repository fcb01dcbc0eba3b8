// Package queue is the scheduler "local": a first-in-first-out queue for a
// machine without Slurm, bounded by its CPUs and memory.
//
// There is no daemon. Every job is one detached process that registers itself
// as a file in the queue's directory, waits for its turn and then becomes the
// job script (execve(2)), so that its pid stays. Of a job that may be tried
// again it starts the script, which is the job's process from then on, and stays
// behind it: when that has ended, by itself or not, it becomes "queue-watch",
// which sees to it that the job comes to an end. No other process watches it:
// when it is killed the job goes on, and is left to whoever looks at it next. A
// file holds the pid and the time that process started; together they name one
// process of this boot, so a file whose process is gone counts for nothing, and
// a crash of a waiting or running job frees its share by itself.
//
// The turn of a job comes when all living jobs before it and the job itself
// fit into the machine together. Numbers are drawn under a lock and never
// below a living one's, so what runs never asks for more than there is.
//
// A job that waits for others ([jobs.Launch].After) stands there too, outside of
// the queue and without a share of the machine, and asks how they stand. When
// they have ended it draws a turn as if it came then. One that never can begin
// becomes its job at once, which records that.
//
// The directory is split by host, boot and process namespace, because a pid
// means nothing elsewhere. About a job of another host the queue can say
// nothing: [Queue.Status] then answers with an empty state, which is not the
// same as a missing name. A job that is over leaves no state here; its own
// exit record is the word on it.
package queue
