/* How the workers of a sweep claim a batch, take it over, split it, give it back
 * and close it, and which result of a task counts: docs/sweeps.md, internal/sweep.
 *
 * There is one batch of two tasks, P, which may be split into A and B. A claim is a
 * file made once, by link(2), whose number is the generation. Workers may be killed
 * at every step, and be called gone while they live: by a clock that is wrong, a
 * process that stood still, a network that was cut. They go on recording then. A
 * reply may be lost, and what others have recorded may be seen too late.
 *
 * What must hold: a generation of a task has one result; the one that counts when
 * the batch is closed counts for ever; and while a worker lives, all is closed.
 */
#define WORKERS 2
#ifndef FAULTS
#define FAULTS 3
#endif
/* Ways to do it wrong, each of which has to be found. */
#define LOOK 1                   /* look whether there is such a file, and make it then */
#define TRUST 2                  /* take "it exists" for the file of another */
#define LATEST 3                 /* of a task's results the latest counts */
#define LEAVE 4                  /* leave former results where they are */
#ifndef WRONG
#define WRONG 0
#endif

#define P 0
#define A 1
#define B 2
#define HELD 1
#define FREE 2
#define CLOSED 3
#define SPLIT 4

/* The files: claims/1/000/RANGE.N. What those before the last one say does not
 * matter any more. */
byte last[3];                    /* the highest number of each */
byte kind[3];
byte holder[3];

/* The results: in workers/000/NNN/results, with their generation. */
byte counts[2];                  /* the generation of the one that counts; 0 is none */
byte final[2];                   /* the same, when its batch was closed */

bool dead[WORKERS];

/* What is left of each fault, of which FAULTS may happen; and of what workers
 * may do besides. */
byte kills = 1, early = 2, replies = 1, stale = 1;
byte frees = 1, splits = 1;
#define may(fault) (fault > 0 && kills + early + replies + stale > 5 - FAULTS)

#define is(c, k) (kind[c] == k)
#define exists(c) (c == P || is(P, SPLIT))
#define held(c) (exists(c) && is(c, HELD))
#define other(w, c) (holder[c] != w)
#define gone(c) (dead[holder[c]])
#define takes(w, c) (exists(c) && (last[c] == 0 || is(c, FREE) || (is(c, HELD) && other(w, c) && (gone(c) || may(early)))))
#define over (is(P, CLOSED) || (is(P, SPLIT) && is(A, CLOSED) && is(B, CLOSED)))
#define within(c, t) (c == P || (c == A && t == 0) || (c == B && t == 1))

/* record is the end of a task, by a worker that does not look whether it still
 * has the batch: it could not look and record at once. */
inline record(t, g) {
	assert(counts[t] != g);
	if
	:: WRONG == LATEST || g > counts[t] -> counts[t] = g
	:: else
	fi;
	assert(final[t] == 0 || final[t] == counts[t])
}

inline close(t) {
	if
	:: within(c, t) -> assert(counts[t] > 0 && final[t] == 0); final[t] = counts[t]
	:: else
	fi
}

/* make is what the file system does, once. */
inline make(k) {
	last[c] = n + 1;
	kind[c] = k;
	holder[c] = w;
	if
	:: k == CLOSED -> close(0); close(1)
	:: k == SPLIT ->
		last[A] = n + 1; kind[A] = HELD; holder[A] = w;
		last[B] = n + 1; kind[B] = FREE; holder[B] = w
	:: else
	fi
}

/* link makes number n + 1 of c, and says whether it did. "It exists", or no reply:
 * the content of that file tells the winner, whenever it is read. */
inline link(k) {
	won = false;
#if WRONG == LOOK
	if
	:: atomic { last[c] == n -> won = true }
	:: atomic { last[c] != n }
	fi;
	atomic {
		if
		:: won && !dead[w] -> make(k)
		:: else
		fi }
#else
	atomic {
		if
		:: !dead[w] && last[c] == n -> make(k);
			if
			:: won = true
			:: may(replies) -> replies--; won = (WRONG != TRUST)
			fi
		:: else
		fi }
#endif
}

inline leave() {
	c = 0; n = 0; g = 0; todo = 0; won = false;
	goto look
}

inline look_at(chain) {
	c = chain;
	n = last[chain];
	if
	:: last[chain] > 0 && is(chain, HELD) && !gone(chain) -> early--
	:: else
	fi
}

/* seen is what the holder reads of a task's former results: it records a result
 * again under its own generation, so that no former holder can come above it. */
inline seen(t) {
	atomic {
		if
		:: dead[w] || !within(c, t)
		:: !dead[w] && within(c, t) && counts[t] == 0 -> todo = todo | (1 << t)
		:: !dead[w] && within(c, t) && counts[t] > 0 ->
			if
			:: WRONG != LEAVE -> record(t, g)
			:: else
			fi
		:: !dead[w] && within(c, t) && counts[t] > 0 && may(stale) -> stale--; todo = todo | (1 << t)
		fi }
}

proctype worker(byte w) {
	byte c = 0, n = 0, g = 0, todo = 0;
	bool won = false;
look:
	atomic {
		if
		:: dead[w] || over -> goto out
		:: !dead[w] && takes(w, P) && (w == 0 || last[P] > 0) -> look_at(P)
		:: !dead[w] && takes(w, A) -> look_at(A)
		:: !dead[w] && takes(w, B) -> look_at(B)
		fi };
	link(HELD);
	if
	:: atomic { !won -> leave() }
	:: else
	fi;
	atomic { n = n + 1; g = n; won = false };
	seen(0);
	seen(1);
work:
	if
	:: atomic { dead[w] -> goto out }
	:: atomic { !dead[w] && (todo & 1) -> record(0, g); todo = todo & 2 }
	:: atomic { !dead[w] && (todo & 2) -> record(1, g); todo = todo & 1 }
	:: atomic { !dead[w] && todo == 0 };
		link(CLOSED);
		atomic { leave() }
	:: atomic { !dead[w] && todo != 0 && frees > 0 -> frees-- };
		link(FREE);
		atomic { leave() }
	/* Others are idle. Task 0 has ended, or runs, or has not begun; task 1 has not begun, or
	 * was taken over with its result. What is recorded of task 0 has the generation of before:
	 * none came between. */
	:: atomic { !dead[w] && todo != 0 && c == P && splits > 0 -> splits--; todo = todo & 1 };
		link(SPLIT);
		atomic {
			if
			:: won -> c = A; n = n + 1; won = false
			:: else -> leave()
			fi }
	fi;
	goto work;
out:
	atomic { c = 0; n = 0; g = 0; todo = 0; won = false }
}

active proctype misfortune() {
end:
	do
	:: atomic { may(kills) && !dead[0] && last[P] > 0 -> kills--; dead[0] = true }
	:: atomic { may(kills) && !dead[1] -> kills--; dead[1] = true }
	od
}

init {
	atomic {
		run worker(0);
		run worker(1) }
}
