/* How a job with several attempts is submitted, run, fenced and accepted.
 *
 * The model has the ledger's files (each created once, see docs/state.md), clients,
 * the reapers or the standbys, a scheduler that may lose a reply,
 * requeue a job and call a node lost, and the runners it starts, which may be
 * killed, or cut off from the ledger and come back. README.md says which lines of
 * the program are meant, and how to run it.
 */
/* The settings: CLIENTS are two that stay; MUTE is standbys, as nodes may not
 * submit; else, REAPERS, there is the reaper. */
#ifdef MUTE
#define mute true
#else
#define mute false
#endif
#ifdef CLIENTS
#define clients true
#else
#define clients false
#endif

#define ATTEMPTS 3
#define JOBS 5                   /* 0 to 2: of an attempt each; 3, 4: standbys behind the first */
#define NONE 255
#ifndef FAULTS
#define FAULTS 5
#endif

/* Who looks at the job. */
#define CLIENT 0
#define REAPER 1
#define STANDBY 2

/* The ledger. */
byte attempts;                   /* how many attempts/n/ there are: jobs/store/begin.go */
byte in[ATTEMPTS] = NONE;        /* submitted.json: the scheduler's job that it is in */
byte claimed[ATTEMPTS] = NONE;   /* claim.json: which start of a runner */
bool ended[ATTEMPTS];            /* exit.json */
bool good[ATTEMPTS];             /* what it says; with an acceptance by its runner, what it will say */
bool verdict[ATTEMPTS];          /* verdict.json */
byte decision[ATTEMPTS];         /* decision.json: 0 none, 1 accept, 2 retry */
bool misfit[ATTEMPTS];           /* with retry: the next one asks for something else */
bool requeued[ATTEMPTS];         /* with retry: because the scheduler has requeued its job */
bool guarded[ATTEMPTS];          /* reaper.json: a reaper waits for the end of its job */
bool sending[ATTEMPTS];          /* who has recorded it is about to submit it */
byte lease = NONE;               /* of the overlay: which start of a runner */

/* The scheduler: 0 never heard of it, 1 waits, 2 runs, 3 over. */
byte job[JOBS];

/* Starts of runners. A start is silent when its container is gone for sure:
 * killed, or cut off for longer than its guest waits for a ping. That a taker
 * waits longer than that (180 s by its own clock, against 120 s) is what this
 * model assumes and does not show. */
#define STARTS 4
byte start_in[STARTS] = NONE;    /* which job */
bool alive[STARTS];
bool cut[STARTS];
bool inside[STARTS];             /* its container runs, and writes the overlay */
byte starts;

/* What is observed. */
byte accepted, promoted;
bool unguarded;                  /* a client was killed and no other came */

/* Faults that are left, of which FAULTS may happen. */
byte lost_replies = 1, kills = 1, cuts = 1, requeues = 1, client_kills = 1;
#define may(fault) (fault > 0 && lost_replies + kills + cuts + requeues + client_kills > 5 - FAULTS)

#define silent(s) (!inside[s] && (!alive[s] || cut[s]))
#define gone(a) (claimed[a] != NONE && silent(claimed[a]))
/* A good result that its runner has accepted is finished, whatever else is said. */
#define unfinished(a) (decision[a] == 1 && good[a] && !ended[a])
#define over(a) (ended[a] || (verdict[a] && !unfinished(a)))
#define final(a) (decision[a] == 1 && over(a))
#define due(a) (decision[a] == 2 && over(a) && a + 1 < ATTEMPTS && !exists(a + 1))
#define exists(a) ((a) < attempts)
#define current (attempts - 1)
#define follows(a) (a + 1 < ATTEMPTS && exists(a + 1))
/* The scheduler has ended the job that the attempt was in. */
#define closed(a) (in[a] != NONE && job[in[a]] == 3)

inline enter(s) {
	/* What must never be: two containers on one overlay. */
	inside[s] = true;
	assert(inside[0] + inside[1] + inside[2] + inside[3] <= 1)
}

/* accept counts an acceptance: the file is made once per attempt, and the next
 * attempt exists only after a decision to retry. */
inline accept(a) {
	decision[a] = 1;
	accepted++;
	assert(accepted <= 1)
}

/* decide is jobs.Next and store.SetDecision: a good end is accepted, another one
 * is tried again while there are attempts left. */
inline decide(a, success) {
	if
	:: success -> accept(a)
	:: !(success) && a + 1 < ATTEMPTS -> decision[a] = 2;
		if
		:: mute -> misfit[a] = true
		:: true
		fi
	:: !(success) && a + 1 == ATTEMPTS -> accept(a)
	fi
}

/* begin is store.Begin, which one of all who try can do, and only of an attempt
 * that is due. */
inline begin(a) {
	assert(!exists(a + 1) && over(a) && decision[a] == 2);
	attempts++
}

/* guard is Engine.Guard: a reaper, or standbys where nodes may not submit. */
inline guard(a) {
	guarded[a] = !mute;
	if
	:: mute && a == 0 && job[3] == 0 -> job[3] = 1; job[4] = 1
	:: else
	fi
}

/* send is Scheduler.Submit of an attempt by whoever has recorded it. Its outcome
 * may be unclear; it is never sent again (resolveUnclear, findLost). Who is killed
 * after it leaves the attempt without a reaper. */
inline send(a) {
	assert(sending[a] && job[a] == 0);
	if
	:: atomic { job[a] = 1; in[a] = a; sending[a] = false; guard(a) }
	:: atomic { may(lost_replies) -> lost_replies--; job[a] = 1; sending[a] = false }
	:: atomic { may(client_kills) -> client_kills--; sending[a] = false;
		if
		:: job[a] = 1; in[a] = a
		:: skip
		fi;
		goto killed }
	fi
}

/* What begins another attempt in a job of its own: Engine.begin, called by the
 * runner at its end, by the reaper, and by a client that looks. It leaves the
 * beginning to a requeued job, and to a standby that fits (Engine.leave). */
#define mayclaim(a) (claimed[a] == NONE && !over(a) && decision[a] == 0)
#define free(j) ((job[j] == 1 || job[j] == 2) && in[0] != j && in[1] != j && in[2] != j)
#define left(a) (!misfit[a] && ((requeued[a] && in[a] != NONE && job[in[a]] == 2) || free(3) || free(4)))

proctype runner(byte a; byte j; byte s; bool again) {
	bool ok = false, mine = false;
	/* A requeued job starts with the script of an attempt, and is the current one:
	 * internal/node/runner/follow.go, restarted. */
	if
	:: atomic { !alive[s] -> goto out }
	:: atomic { alive[s] && !again ->
		if
		:: mayclaim(a) -> claimed[a] = s
		:: else -> goto out
		fi }
	:: atomic { alive[s] && again && mayclaim(current) && (current == j || in[current] == j) -> again = false; a = current; claimed[a] = s }
	:: atomic { alive[s] && again && !(mayclaim(current) && (current == j || in[current] == j)) ->
		again = false; a = current;
		if
		:: claimed[a] == NONE -> goto out
		:: else
		fi;
		if
		:: start_in[claimed[a]] != j || unfinished(a) -> goto out
		:: else
		fi;
		if
		:: !ended[a] -> verdict[a] = true
		:: else
		fi;
		if
		:: decision[a] == 0 && !ended[a] -> decide(a, false); requeued[a] = decision[a] == 2
		:: decision[a] == 0 && ended[a] -> decide(a, good[a])
		:: else
		fi };
		/* Begin the next one here, unless that is done. */
		if
		:: atomic { alive[s] && due(a) && !misfit[a] -> begin(a); in[a + 1] = j; a = a + 1 }
		:: atomic { !alive[s] || !due(a) || misfit[a] -> goto out }
		fi;
		if
		:: atomic { !alive[s] -> goto out }
		:: atomic { alive[s] && claimed[a] == NONE && !over(a) -> claimed[a] = s }
		:: atomic { alive[s] && (claimed[a] != NONE || over(a)) -> goto out }
		fi
	fi;
	/* The lease: internal/sys/lease. It is never taken from one who may still write.
	 * Some time before the task ends the runner has its reaper submitted (guard). */
	atomic { lease == NONE || silent(lease) || !alive[s] || cut[s] ->
		if
		:: !alive[s] -> goto out
		:: cut[s] -> goto leave
		:: else -> lease = s; enter(s); guarded[a] = !mute
		fi }
	/* The task. A cut ends the container before anybody may call it silent. */
	atomic {
		if
		:: ok = true
		:: ok = false
		fi;
leave:
		inside[s] = false;
		if
		:: !alive[s] -> ok = false; goto out
		:: else
		fi };
	/* Late or not: nothing counts before the decision is made here. */
	if
	:: atomic { !cut[s] && alive[s] && claimed[a] == s && decision[a] == 0 && ok && lease == s ->
		accept(a); good[a] = true }
	:: atomic { !cut[s] && alive[s] && claimed[a] == s && decision[a] == 0 && !(ok && lease == s) ->
		ok = false; decide(a, false); mine = decision[a] == 2 }
	:: atomic { cut[s] || !alive[s] || claimed[a] != s || decision[a] != 0 -> ok = false }
	fi;
	/* Promotion: overlay.Layer.Promote, while the lease stands. */
	atomic {
		if
		:: ok && alive[s] && lease == s && decision[a] == 1 && !ended[a] -> promoted++; assert(promoted <= 1)
		:: else
		fi;
		ok = false;
		if
		:: lease == s -> lease = NONE
		:: else
		fi };
	atomic {
		if
		:: alive[s] && !cut[s] && (!verdict[a] || unfinished(a)) -> ended[a] = true
		:: else
		fi };
	/* goOn begins the next attempt, when that was decided here, and takes the
	 * reaper out of the queue when the next one has its own. */
	if
	:: atomic { mine && !mute && alive[s] && !cut[s] && due(a) && !left(a) -> begin(a); a = a + 1; sending[a] = true };
		send(a);
		atomic {
			if
			:: guarded[a] -> guarded[a - 1] = false
			:: else
			fi }
	:: else
	fi;
killed:
out:
	atomic { inside[s] = false; alive[s] = false; mine = false; again = false; a = 0;
		if
		:: job[j] == 2 -> job[j] = 3
		:: else
		fi }
}

/* The scheduler starts what waits, calls nodes lost, requeues. */
#define start(a, j, again) start_in[starts] = j; alive[starts] = true; run runner(a, j, starts, again); starts++
active proctype scheduler() {
end:
	do
	:: atomic { job[0] == 1 && starts < STARTS -> job[0] = 2; start(0, 0, false) }
	:: atomic { job[1] == 1 && starts < STARTS -> job[1] = 2; start(1, 1, false) }
	:: atomic { job[2] == 1 && starts < STARTS -> job[2] = 2; start(2, 2, false) }
	:: atomic { job[3] == 1 && job[0] == 3 -> job[3] = 2; run look(STANDBY, 3) }
	:: atomic { job[4] == 1 && job[3] == 3 -> job[4] = 2; run look(STANDBY, 4) }
	:: atomic { may(requeues) && starts > 0 && starts < STARTS && job[0] == 2 && start_in[0] == 0 ->
		/* the former start goes on: its node is cut off from the scheduler */
		requeues--; start(0, 0, true) }
	od
}

/* Faults of runners. */
active proctype misfortune() {
end:
	do
	:: atomic { may(kills) && starts > 0 && alive[0] -> kills--; alive[0] = false; inside[0] = false }
	:: atomic { may(kills) && starts > 1 && alive[1] -> kills--; alive[1] = false; inside[1] = false }
	:: atomic { may(cuts) && starts > 0 && alive[0] -> cuts--; cut[0] = true }
	:: atomic { may(cuts) && starts > 1 && alive[1] -> cuts--; cut[1] = true }
	:: atomic { cut[0] && !inside[0] -> cut[0] = false }
	:: atomic { cut[1] && !inside[1] -> cut[1] = false }
	od
}

/* A standby's place in the queue is that of the attempt it was submitted behind. */
#define precedes(a) (in[a] != NONE && (in[a] == in[0] || in[a] >= ATTEMPTS))

/* look is Engine.Reconcile, which a client, a reaper and a waiting standby (job j)
 * have done. It waits where they come back later: who is left waiting at the end of
 * a run has found a job that will never end. */
proctype look(byte who; byte j) {
	byte own = NONE;
	if
	:: who == CLIENT ->
		/* Submit: the intent is recorded first. */
		if
		:: atomic { !exists(0) -> attempts = 1; sending[0] = true };
			send(0)
		:: exists(0)
		fi;
		if
		:: clients -> goto again
		:: else -> goto done   /* logs out */
		fi
	:: who == REAPER
	:: who == STANDBY -> goto again
	fi;
end_waits:
	if
	:: atomic { guarded[0] && closed(0) -> own = 0 }
	:: atomic { guarded[1] && closed(1) -> own = 1 }
	:: atomic { guarded[2] && closed(2) -> own = 2 }
	fi;
again:
	if
	:: atomic { final(current) ->
		/* What was accepted is told as what it is, though its runner was killed. */
		assert(!good[current] || ended[current]);
		goto done }
	/* findLost: a submission without a word is found by its name; one that never
	 * was is concluded, long after whoever had recorded it. */
	:: atomic { in[current] == NONE && job[current] != 0 && !sending[current] -> in[current] = current }
	:: atomic { in[current] == NONE && job[current] == 0 && !sending[current] && !over(current) -> verdict[current] = true }
	/* judge: the scheduler has no more of it, and its runner is silent. */
	:: atomic { closed(current) && !over(current) && (claimed[current] == NONE || gone(current)) ->
		if
		:: unfinished(current) -> ended[current] = true   /* internal/node/conclude, in the runner's place */
		:: else -> verdict[current] = true
		fi }
	:: atomic { over(current) && decision[current] == 0 -> decide(current, (ended[current] && good[current])) }
	:: atomic { who != STANDBY && due(current) && !left(current) -> begin(current); sending[current] = true };
		send(current)
	/* guardLeft, and Reap of an attempt that is not its own. */
	:: atomic { who == CLIENT && in[current] != NONE && !over(current) && !guarded[current] && !(mute && (current > 0 || job[3] != 0)) -> guard(current) }
	:: atomic { who == REAPER && own != current && in[current] != NONE && !over(current) && !guarded[current] -> guarded[current] = true }
	:: atomic { who == REAPER && own != current && guarded[current] -> guarded[own] = false; own = NONE; goto end_waits }
	/* standIn: it is the next attempt, or is not needed. */
	:: atomic { who == STANDBY && due(current) && !misfit[current] && starts < STARTS ->
		begin(current); in[current] = j; start(current, j, false); goto stands }
	:: atomic { who == STANDBY && due(current) && misfit[current] -> goto done }
	:: atomic { who == STANDBY && !due(current) && !precedes(current) -> goto done }
	fi;
	goto again;
killed:
	/* A reaper is requeued by the scheduler. */
	if
	:: who == REAPER -> goto again
	:: who == CLIENT && clients
	:: who == CLIENT && !clients -> goto again
	:: who == CLIENT && !clients -> unguarded = true
	fi;
done:
	atomic {
		own = NONE;
		if
		:: who == STANDBY -> job[j] = 3
		:: else
		fi };
stands:
	skip
}

#ifndef CLIENTS
/* At the end of every run the job is over, also where no client stayed: unless one
 * was killed before the job was looked after, or nodes that may not submit were to
 * begin an attempt that asks for something else. */
active proctype unattended() {
end:
	timeout -> assert(final(current) || unguarded || lost_replies == 0 || misfit[0] || misfit[1])
}
#endif

init {
	atomic {
#if defined(CLIENTS)
		run look(CLIENT, NONE);
#elif !defined(MUTE)
		run look(REAPER, NONE);
#endif
		run look(CLIENT, NONE) }
}
