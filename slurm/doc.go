// Package slurm is the scheduler "slurm": it drives sbatch, squeue, sacct,
// scancel and scontrol as programs, on any [jobs.Starter], because they carry
// the site's configuration and the user's credentials.
//
// Fixed fields are the contract (squeue -o, sacct -P); the JSON of these
// programs changes with every release. The programs run in an environment
// without SLURM_*, SBATCH_* and their like, so that it makes no difference
// whether berth itself runs inside a job; TZ is UTC for the queries, so that
// their times need no guessing.
//
// What the package promises when Slurm does not answer: a query that failed
// is an error and never a state; an unknown state word is no
// state; a job is matched by id and by name, because ids are used again after
// a cluster is installed again. An unclear submission is [jobs.KindUnclear] and is
// resolved by name ([Scheduler.Find]), never by submitting again.
package slurm
