/* How a job with several attempts is submitted, run, fenced and accepted.
 *
 * The model has the ledger's files (each created once, see docs/state.md), two
 * clients, a scheduler that may lose a reply, requeue a job and call a node
 * lost, and the runners it starts, which may be killed, or cut off from the
 * ledger and come back. README.md says which lines of the program are meant,
 * and how to run it.
 */
#define ATTEMPTS 3
#define NONE 255

/* The ledger. */
bool exists[ATTEMPTS];           /* attempts/n/ : jobs/store/begin.go */
bool submitted[ATTEMPTS];        /* submitted.json */
byte claimed[ATTEMPTS] = NONE;   /* claim.json: which start of a runner */
bool ended[ATTEMPTS];            /* exit.json */
bool good[ATTEMPTS];             /* what it says; with an acceptance by its runner, what it will say */
bool verdict[ATTEMPTS];          /* verdict.json */
byte decision[ATTEMPTS];         /* decision.json: 0 none, 1 accept, 2 retry */
bool sending[ATTEMPTS];          /* who has recorded it is about to submit it */
byte lease = NONE;               /* of the overlay: which start of a runner */

/* The scheduler: 0 never heard of it, 1 waits, 2 runs, 3 over. */
byte job[ATTEMPTS];

/* Starts of runners. A start is silent when its container is gone for sure:
 * killed, or cut off for longer than its guest waits for a ping. That a taker
 * waits longer than that (180 s by its own clock, against 120 s) is what this
 * model assumes and does not show. */
#define STARTS 4
byte start_of[STARTS] = NONE;    /* which attempt */
bool alive[STARTS];
bool cut[STARTS];
bool inside[STARTS];             /* its container runs, and writes the overlay */
byte starts;

/* What is observed. */
byte accepted, promoted;
bool acknowledged;

/* Faults that are left. */
byte lost_replies = 1, kills = 1, cuts = 1, requeues = 1, client_kills = 1;

#define silent(s) (!inside[s] && (!alive[s] || cut[s]))
#define gone(a) (claimed[a] != NONE && silent(claimed[a]))
/* A good result that its runner has accepted is finished, whatever else is said. */
#define unfinished(a) (decision[a] == 1 && good[a] && !ended[a])
#define over(a) (ended[a] || (verdict[a] && !unfinished(a)))

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
inline decide(a) {
	if
	:: decision[a] == 0 && ended[a] && good[a] -> accept(a)
	:: decision[a] == 0 && !(ended[a] && good[a]) && a + 1 < ATTEMPTS -> decision[a] = 2
	:: decision[a] == 0 && !(ended[a] && good[a]) && a + 1 == ATTEMPTS -> accept(a)
	:: else
	fi
}

proctype runner(byte a; byte s) {
	bool ok = false;
	/* A job that was requeued starts with the script of its first attempt:
	 * internal/node/runner/follow.go, restarted. */
	if
	:: atomic { claimed[a] == NONE && !over(a) && decision[a] == 0 -> claimed[a] = s }
	:: atomic { (claimed[a] != NONE || over(a) || decision[a] != 0) ->
		if
		:: claimed[a] != NONE && decision[a] == 0 && !ended[a] -> verdict[a] = true; decide(a)
		:: else
		fi;
		/* Begin the next one here, unless somebody has. */
		if
		:: decision[a] == 2 && !exists[a + 1] ->
			exists[a + 1] = true; submitted[a + 1] = true; job[a + 1] = 2; job[a] = 3;
			a = a + 1; start_of[s] = a; claimed[a] = s
		:: else -> goto out
		fi }
	fi;
	/* The lease: internal/sys/lease. It is taken from nobody who may still write. */
	atomic { lease == NONE || silent(lease) || !alive[s] || cut[s] ->
		if
		:: !alive[s] -> goto out
		:: cut[s] -> goto leave
		:: else -> lease = s; enter(s)
		fi }
	/* The task. A cut ends the container before anybody may call it silent. */
	if
	:: ok = true
	:: ok = false
	fi;
leave:
	atomic { inside[s] = false };
	if
	:: !alive[s] -> goto out
	:: else
	fi;
	/* Late or not: nothing counts before the decision is made here. */
	if
	:: atomic { !cut[s] && alive[s] && claimed[a] == s && decision[a] == 0 && ok && lease == s ->
		accept(a); good[a] = true }
	:: atomic { !cut[s] && alive[s] && claimed[a] == s && decision[a] == 0 && !(ok && lease == s) ->
		if
		:: a + 1 < ATTEMPTS -> decision[a] = 2
		:: else -> accept(a)
		fi }
	:: atomic { cut[s] || !alive[s] || claimed[a] != s || decision[a] != 0 -> ok = false }
	fi;
	/* Promotion: overlay.Layer.Promote, while the lease stands. */
	atomic {
		if
		:: ok && alive[s] && lease == s && decision[a] == 1 && !ended[a] -> promoted++; assert(promoted <= 1)
		:: else
		fi;
		if
		:: lease == s -> lease = NONE
		:: else
		fi };
	atomic {
		if
		:: alive[s] && !cut[s] && (!verdict[a] || unfinished(a)) -> ended[a] = true
		:: else
		fi };
out:
	atomic { inside[s] = false; alive[s] = false;
		if
		:: start_of[s] == a && job[a] == 2 -> job[a] = 3
		:: else
		fi }
}

/* The scheduler starts what waits, calls nodes lost, requeues. */
active proctype scheduler() {
	byte i;
end:
	do
	:: atomic { job[0] == 1 && starts < STARTS -> job[0] = 2; start_of[starts] = 0; alive[starts] = true; run runner(0, starts); starts++ }
	:: atomic { job[1] == 1 && starts < STARTS -> job[1] = 2; start_of[starts] = 1; alive[starts] = true; run runner(1, starts); starts++ }
	:: atomic { job[2] == 1 && starts < STARTS -> job[2] = 2; start_of[starts] = 2; alive[starts] = true; run runner(2, starts); starts++ }
	:: atomic { requeues > 0 && starts > 0 && starts < STARTS && job[start_of[0]] == 2 && start_of[0] == 0 ->
		/* the former start goes on: its node is cut off from the scheduler */
		requeues--; start_of[starts] = 0; alive[starts] = true; run runner(0, starts); starts++ }
	od
}

/* Faults of runners. */
active proctype misfortune() {
	byte s;
end:
	do
	:: atomic { kills > 0 && starts > 0 && alive[0] -> kills--; alive[0] = false; inside[0] = false }
	:: atomic { kills > 0 && starts > 1 && alive[1] -> kills--; alive[1] = false; inside[1] = false }
	:: atomic { cuts > 0 && starts > 0 && alive[0] -> cuts--; cut[0] = true }
	:: atomic { cuts > 0 && starts > 1 && alive[1] -> cuts--; cut[1] = true }
	:: atomic { cut[0] && !inside[0] -> cut[0] = false }
	:: atomic { cut[1] && !inside[1] -> cut[1] = false }
	od
}

/* send is Scheduler.Submit of an attempt by whoever has recorded it. Its outcome
 * may be unclear; nobody sends it again (resolveUnclear, findLost). */
inline send(a) {
	if
	:: atomic { job[a] = 1; submitted[a] = true; sending[a] = false }
	:: atomic { lost_replies > 0 -> lost_replies--; job[a] = 1; sending[a] = false }
	:: atomic { client_kills > 0 -> client_kills--; sending[a] = false; goto died }
	fi
}

proctype client() {
	byte a;
	/* Submit: the intent is recorded first. */
	if
	:: atomic { !exists[0] -> exists[0] = true; sending[0] = true };
		send(0);
		acknowledged = true
	:: exists[0]
	fi;
look:
	if
	:: atomic { exists[2] -> a = 2 }
	:: atomic { exists[1] && !exists[2] -> a = 1 }
	:: atomic { exists[0] && !exists[1] -> a = 0 }
	fi;
	if
	:: atomic { decision[a] == 1 && over(a) ->
		/* What was accepted is told as what it is, though its runner was killed. */
		assert(!good[a] || ended[a]);
		goto died }
	/* findLost: a submission without a word is found by its name; one that never
	 * was is concluded, long after whoever had recorded it. */
	:: atomic { !submitted[a] && job[a] != 0 && !sending[a] -> submitted[a] = true }
	:: atomic { !submitted[a] && job[a] == 0 && !sending[a] && !over(a) -> verdict[a] = true }
	/* judge: the scheduler has no more of it, and its runner is silent. */
	:: atomic { submitted[a] && job[a] == 3 && !over(a) && (claimed[a] == NONE || gone(a)) ->
		if
		:: unfinished(a) -> ended[a] = true   /* internal/node/finish, in the runner's place */
		:: else -> verdict[a] = true
		fi }
	:: atomic { over(a) && decision[a] == 0 -> decide(a) }
	:: atomic { over(a) && decision[a] == 2 && a + 1 < ATTEMPTS && !exists[a + 1] -> exists[a + 1] = true; sending[a + 1] = true };
		send((a + 1))
	:: else
	fi;
	goto look;
died:
	skip
}

init {
	atomic { run client(); run client() }
}
