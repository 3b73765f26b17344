/* The protocol of msghandler for one message: its producer, NC owners (coordinators, or lanes of one), the record in
   Redis and the broker. README.md says what is modelled, what is not, and what each assertion means. check.sh runs it.

   The first part is the vocabulary and the table of moves; test/model compares it with internal/halfmsg/state.go. */

mtype = { s_none, s_pending, s_sendable, s_done, s_rolled_back, s_abandoned, s_dead, s_acknowledged };

mtype = { e_send, e_submit, e_submit_trusted, e_rollback, e_committed, e_rolled_back, e_unknown, e_unreachable, e_given_up,
          e_timed_out, e_acked, e_acked_marked, e_refused, e_unsure, e_exhausted, e_marker_deleted, e_marker_kept, e_marker_left,
          e_released, e_retry, e_discard, e_replay };

mtype = { b_idle, b_running, b_committed, b_aborted };    /* the business: the only truth about "committed" */
mtype = { m_none, m_committed, m_cleaned, m_rolled_back };  /* the marker */

/* All faults share one budget, so a run sees every combination of FAULTS of them:
     an owner dies between two effects, or cannot store its result while its lease lasts;
     a lease ends under an owner that lives and goes on;
     a call of the producer, or the store's answer to an owner, comes late, or twice;
     the outcome of a publish stays unknown, or the broker refuses (a copy may be in a queue nevertheless);
     the producer's process dies;
     an operator retries or discards; a client sends the same id with other content;
     Redis forgets its last writes (with REGRESS only).
   These cost nothing and may happen without limit: a producer or a broker out of reach, a spurious UNKNOWN, a message
   that is handed back, a Submit or Rollback that is lost, a DeleteBusiness that fails. */
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef NC
#define NC 2        /* owners: coordinators, or lanes of one */
#endif
#ifndef REGRESS
#define REGRESS 0   /* 1: Redis may forget its last writes, once; 2: even the half message itself */
#endif
#ifndef RECEIPT_ENDS
#define RECEIPT_ENDS 0  /* 1: the receipt of a finished message may expire */
#endif

/* The configuration. */
#ifndef ATTEMPTS
#define ATTEMPTS 1  /* confirm.attempts: UNKNOWNs before the final Confirm call */
#endif
#ifndef GIVE_UP
#define GIVE_UP 0   /* 1: confirm.give_up_after is set, and may pass at any time */
#endif
#ifndef STEPS
#define STEPS 0     /* steps of send.backoff: the refusal after the last one is the end */
#endif
#ifndef AFTER_ACK
#define AFTER_ACK 0 /* delete_business.when: after_ack */
#endif
#ifndef DELETES
#define DELETES 1   /* failed deletions of the marker of an acknowledged message before the last one */
#endif
#ifndef TRUST
#define TRUST 0     /* submit.trust */
#endif
/* Markers: 0 memory (a restart forgets), 1 Redis (set after the commit), 2 SQL (in the transaction; the final Confirm
   call plants a tombstone). */
#ifndef MARKER
#define MARKER 1
#endif
#ifndef ROW_KEPT
#define ROW_KEPT 1  /* SQL: DeleteBusiness marks the row as cleaned rather than removing it */
#endif
#ifndef TOMBSTONE_KEPT
#define TOMBSTONE_KEPT 1  /* SQL: DeleteBusiness leaves a tombstone where it is */
#endif

/* ---- the record in Redis ---------------------------------------------------------------------------------------- */
#define GONE 255            /* the token of an owner that is dead or has released the message */
mtype rec = s_none;
byte content = 0;           /* 1 is the content of the first SendHalfMessage */
byte holder = 0;            /* the owner whose token is in the record; 0: none */
bool live = false;          /* the lease has not ended, by the store's clock */
bool hurry = false;         /* submitted or retried while its owner was busy */
byte confirms = 0, publishes = 0, copies = 0, deletes = 0;
/* the state to which Redis falls back */
bool have_snap = false, sn_live = false, sn_hurry = false;
mtype sn_rec = s_none;
byte sn_holder = 0, sn_confirms = 0, sn_publishes = 0, sn_copies = 0, sn_deletes = 0;

/* ---- the producer and the network ------------------------------------------------------------------------------- */
mtype biz = b_idle, marker = m_none;
bool half_ok = false;       /* the producer has got OK for its half message */
bool producer_done = false;
byte net_send = 0, net_other = 0, net_submit = 0, net_rollback = 0;  /* calls under way */
bool net_final = false;     /* a final Confirm call whose caller no longer waits */

/* ---- the view of a checker outside -------------------------------------------------------------------------------- */
byte out = 0;               /* copies that reached a queue: bit n is the one with attempt n */
byte highest = 0;           /* the highest attempt among them */
bool done = false;          /* the broker has acknowledged and routed a copy */
bool fate = false;          /* a verdict is stored */
bool said_committed = false, said_rolled_back = false;
bool accepted = false;      /* a Submit that is the verdict was answered with OK */
bool discarded = false, forgot = false;
bool left = false;          /* a marker was left to the producer's own clean-up */
byte unknowns = 0;          /* UNKNOWN answers that a producer really gave, up to ATTEMPTS + 1 */

byte faults = FAULTS;       /* the rest of the budget */
bool stalled = false;

mtype to = s_none;          /* scratch: where an event leads; s_none with moved == false when it is refused */
bool moved = false;

/* The table of moves. A move that is missing here is refused. One line each: the test reads them. */
inline next(state, event) {
  moved = true;
  if
  :: state == s_none && event == e_send -> to = s_pending
  :: state == s_none && event == e_replay -> to = s_sendable
  :: state == s_pending && event == e_submit -> to = s_pending
  :: state == s_pending && event == e_submit_trusted -> to = s_sendable
  :: state == s_pending && event == e_rollback -> to = s_rolled_back
  :: state == s_pending && event == e_committed -> to = s_sendable
  :: state == s_pending && event == e_rolled_back -> to = s_rolled_back
  :: state == s_pending && event == e_unknown -> to = s_pending
  :: state == s_pending && event == e_unreachable -> to = s_pending
  :: state == s_pending && event == e_given_up -> to = s_abandoned
  :: state == s_pending && event == e_timed_out -> to = s_abandoned
  :: state == s_pending && event == e_released -> to = s_pending
  :: state == s_pending && event == e_retry -> to = s_pending
  :: state == s_pending && event == e_discard -> to = s_none
  :: state == s_abandoned && event == e_submit -> to = s_pending
  :: state == s_abandoned && event == e_submit_trusted -> to = s_sendable
  :: state == s_abandoned && event == e_retry -> to = s_pending
  :: state == s_abandoned && event == e_discard -> to = s_none
  :: state == s_sendable && event == e_acked -> to = s_done
  :: state == s_sendable && event == e_acked_marked -> to = s_acknowledged
  :: state == s_sendable && event == e_refused -> to = s_sendable
  :: state == s_sendable && event == e_unsure -> to = s_sendable
  :: state == s_sendable && event == e_exhausted -> to = s_dead
  :: state == s_sendable && event == e_released -> to = s_sendable
  :: state == s_sendable && event == e_retry -> to = s_sendable
  :: state == s_acknowledged && event == e_marker_deleted -> to = s_done
  :: state == s_acknowledged && event == e_marker_kept -> to = s_acknowledged
  :: state == s_acknowledged && event == e_marker_left -> to = s_done
  :: state == s_acknowledged && event == e_released -> to = s_acknowledged
  :: state == s_acknowledged && event == e_retry -> to = s_acknowledged
  :: state == s_dead && event == e_retry -> to = s_sendable
  :: state == s_dead && event == e_discard -> to = s_none
  :: else -> moved = false; to = s_none
  fi
}

/* kept whole: what is acknowledged has no content any more, and must be out */
#define KEPT (rec == s_pending || rec == s_sendable || rec == s_abandoned || rec == s_dead)

/* P1, in every state: what has committed is kept, or out. */
inline p1() {
  assert(!(biz == b_committed && half_ok && !discarded && !KEPT && !done));
  /* TRUST: what a trusted Submit has decided is not asked about, given up or rolled back any more */
  assert(!(accepted && !discarded && !forgot && (rec == s_pending || rec == s_abandoned || rec == s_rolled_back)))
}

/* ---- the scripts: each is one atomic step ----------------------------------------------------------------------- */
inline snapshot() {
#if REGRESS > 0
  if
  :: faults > 0 && !have_snap && !forgot && (REGRESS == 2 || rec != s_none) ->
     have_snap = true; sn_rec = rec; sn_holder = holder; sn_live = live; sn_hurry = hurry;
     sn_confirms = confirms; sn_publishes = publishes; sn_copies = copies; sn_deletes = deletes
  :: true
  fi
#else
  skip
#endif
}

inline drop_notes() { holder = 0; live = false; hurry = false; confirms = 0; publishes = 0; copies = 0; deletes = 0 }

/* create.lua */
inline r_send(what) {
  if
#ifdef OVERWRITE            /* defect: a repeated SendHalfMessage is stored without looking */
  :: true -> rec = s_pending; content = what; drop_notes()
#else
  :: rec == s_none -> snapshot(); next(rec, e_send); rec = to; content = what; drop_notes()
  :: else                   /* the same content hears its state, other content ALREADY_EXISTS */
#endif
  fi
}

/* claim.lua; submit.lua claims without counting */
inline take(me, counts) {
  if :: counts && holder != 0 -> 
#ifndef COPIES_FORGOTTEN     /* defect: the copy of an owner that died is not counted */
        copies++
#else
        skip
#endif
     :: else fi;
  hurry = false; holder = me; live = true
}

/* what an owner knows of a message that it has claimed */
inline remember(me) {
  attempt = copies + 1; final = (confirms >= ATTEMPTS); last = (publishes >= STEPS); spent = (deletes >= DELETES)
#if GIVE_UP
  ; if :: final = true :: true fi
#endif
}

/* submit.lua: ok says that it was claimed */
inline r_submit(me, ok) {
  next(rec, e_submit);
  if
  :: moved && live -> hurry = true
  :: moved && !live ->
     snapshot();
     if :: rec != to -> confirms = 0; publishes = 0 :: else fi;
     rec = to; take(me, false); ok = true
  :: else                   /* it hears the state; after ROLLED_BACK it is refused */
  fi
}

/* trust.lua: ok says that it was made sendable, and claimed where hold says so; without it there is a delay */
inline r_trust(me, hold, ok) {
#ifdef TRUST_REMEMBERED     /* defect: only who claims the message knows that its Submit is the verdict */
  r_submit(me, ok);
#else
  next(rec, e_submit_trusted);
  if
  :: moved ->
     snapshot();
     if :: rec == s_abandoned -> confirms = 0; publishes = 0 :: else fi;
     rec = to; fate = true; hurry = false;
     if :: hold -> holder = me; live = true :: else -> holder = 0; live = false fi;
     ok = true
  :: else                   /* it hears the state; after ROLLED_BACK it is refused */
  fi;
#endif
  accepted = (accepted || (rec != s_none && rec != s_rolled_back));
  p1()
}

/* move.lua for a Rollback, a retry, a discard */
inline r_bring(event) {
  next(rec, event);
  if
  :: moved ->
     snapshot();
     if
     :: to == s_rolled_back || to == s_none ->
        if :: to == s_none -> discarded = true :: else -> fate = true fi;
        rec = to; drop_notes()
     :: else ->
        if :: event == e_retry -> confirms = 0; publishes = 0; deletes = 0 :: else fi;
        if
        :: to == rec && live -> hurry = true
        :: else -> rec = to; live = false
        fi
     fi;
     p1()
  :: else
  fi
}

inline apply(me, event, hold) {
  if
  :: to == s_done ->
     assert(!(event == e_marker_deleted && marker == m_committed));  /* LEFTOVER */
     left = (left || event == e_marker_left);
     rec = to; drop_notes()
  :: to == s_acknowledged && rec != to -> rec = to; drop_notes(); holder = me; live = true
  :: to == s_rolled_back -> rec = to; fate = true; drop_notes()
  :: else ->
     if
     :: event == e_unknown || event == e_given_up -> confirms++
     :: event == e_refused || event == e_exhausted -> publishes++; copies++
     :: event == e_unsure -> copies++
     :: event == e_marker_kept -> deletes++
#ifdef UNREACHABLE_COUNTS   /* defect: a producer out of reach uses up an attempt */
     :: event == e_unreachable -> confirms++
#endif
     :: else
     fi;
     if
     :: hurry && (event == e_unknown || event == e_given_up || event == e_timed_out || event == e_refused ||
                 event == e_exhausted || event == e_marker_kept) ->
        hurry = false;
        if
        :: to == s_abandoned -> next(to, e_retry); confirms = 0; publishes = 0
        :: to == s_dead -> next(to, e_retry); confirms = 0; publishes = 0
        :: else
        fi
     :: else
     fi;
     if :: to == s_sendable -> fate = true :: else fi;
     rec = to;
     if :: hold -> live = true :: else -> holder = 0; live = false fi
  fi;
  /* P5: only answers are counted */
  assert(confirms <= unknowns);
  assert(publishes <= FAULTS - faults)
}

/* move.lua for an owner's event; ok: the store accepts the event, or has accepted it before */
inline r_settle(me, event, hold, ok) {
  ok = false;
  if
#ifdef NO_FENCE             /* defect: no token, and no look at the state either: read, then write */
  :: event == e_committed -> rec = s_sendable; fate = true; ok = true; holder = (hold -> me : 0); live = hold
  :: event != e_committed && rec != s_none -> 
     if :: event == e_acked -> rec = s_done; drop_notes()
        :: event == e_rolled_back -> rec = s_rolled_back; fate = true; drop_notes()
        :: event == e_given_up || event == e_timed_out -> rec = s_abandoned; holder = 0; live = false
        :: event == e_exhausted -> rec = s_dead; holder = 0; live = false
        :: event == e_refused || event == e_unsure -> copies++; publishes++; holder = 0; live = false
        :: else -> holder = 0; live = false
     fi; ok = true
  :: else
#else
  :: rec == s_none ->                                       /* ErrLeaseLost */
  :: rec == s_done ->                                       /* the same event, sent before */
     ok = (event == e_acked || event == e_marker_deleted || event == e_marker_left)
  :: rec == s_rolled_back -> ok = (event == e_rolled_back)
  :: else ->
     if
     :: !(holder == me && live) ->                          /* ErrLeaseLost */
     :: else ->
        next(rec, event);
        if
        :: !moved ->                                        /* made before, by an owner that kept its lease */
           ok = (event == e_committed && rec == s_sendable || event == e_acked_marked && rec == s_acknowledged)
        :: else -> snapshot(); apply(me, event, hold); ok = true
        fi
     fi
#endif
  fi;
  p1()
}


/* ---- the producer's callbacks ----------------------------------------------------------------------------------- */
inline confirm(final, ans) {
  if
  :: ans = e_unknown                                        /* it may always say so */
  :: marker == m_committed || marker == m_cleaned -> ans = e_committed
  :: marker == m_rolled_back -> ans = e_rolled_back
#ifdef ABSENCE_IS_VERDICT   /* defect: "no row" is taken for ROLLED_BACK */
  :: marker == m_none && biz != b_running -> ans = e_rolled_back
#else
  :: MARKER == 2 && final && marker == m_none && biz != b_running -> marker = m_rolled_back; ans = e_rolled_back
#endif
  fi;
  said_committed = (said_committed || ans == e_committed);
  said_rolled_back = (said_rolled_back || ans == e_rolled_back);
  /* CONTRADICTION; with REGRESS and rows removed it is known to happen, and P1 is what is looked at */
  assert(forgot || (REGRESS && !ROW_KEPT) || !(said_committed && said_rolled_back))
}

inline delete_business() {
  assert(fate || forgot);                                   /* P3 */
  assert(!AFTER_ACK || marker != m_committed || done);      /* P3 */
  if
  :: marker == m_committed && MARKER == 2 && ROW_KEPT -> marker = m_cleaned
  :: marker == m_committed && !(MARKER == 2 && ROW_KEPT) -> marker = m_none
  :: marker == m_rolled_back && !(MARKER == 2 && TOMBSTONE_KEPT) -> marker = m_none
  :: else
  fi
}

/* ---- the producer ----------------------------------------------------------------------------------------------- */
proctype Producer() {
  byte tries = 0;
send:
  if
  :: atomic { r_send(1); half_ok = true }
  :: atomic { faults > 0 && tries == 0 -> faults--; net_send++; tries++ }; goto send  /* it may still arrive, or not */
  :: atomic { biz = b_aborted }; goto end_producer          /* given up: no OK, no business */
  fi;
  if
#if TRUST && defined(SUBMIT_TOO_EARLY)  /* defect: a producer that is trusted submits before it has committed */
  :: atomic { biz = b_running; net_submit++ }
#endif
  :: atomic { biz = b_running }
  :: atomic { faults > 0 -> faults--; biz = b_aborted }; goto end_producer
  fi;
  if
  :: atomic { (MARKER < 2 || marker == m_none) -> biz = b_committed;
       if :: MARKER == 2 -> marker = m_committed :: else fi; p1() }
  :: atomic { MARKER == 2 && marker != m_none -> biz = b_aborted }; goto end_producer  /* the tombstone: duplicate key */
  :: atomic { biz = b_aborted; if :: MARKER < 2 && marker == m_none -> marker = m_rolled_back :: else fi };
     if :: atomic { net_rollback++ } :: true fi;
     goto end_producer
  :: atomic { faults > 0 -> faults--; biz = b_aborted }; goto end_producer               /* it died inside */
  fi;
  if
  :: atomic { MARKER < 2 && marker == m_none -> marker = m_committed }
  :: atomic { MARKER < 2 && marker != m_none }
  :: atomic { MARKER == 2 }
  :: atomic { faults > 0 -> faults-- }; goto end_producer     /* committed, and dead before it could say so */
  fi;
  if :: atomic { net_submit++ } :: true fi;                 /* a Submit may be lost: no difference */
end_producer:
  atomic { producer_done = true }
}

/* DUP: no two copies have the same attempt, so at most one is not flagged; copies are paid for by faults; and unless an
   owner was stopped between the look at its lease and the publish, a later copy has a higher attempt. A message that
   was discarded and sent again, or that Redis forgot, begins at 1. */
inline arrive(n) {
  assert(discarded || forgot || !(out & (1 << n)));
  assert(discarded || forgot || n <= 1 + FAULTS - faults);
  assert(discarded || forgot || n > highest || stalled);
  out = out | (1 << n);
  if :: n > highest -> highest = n :: else fi
}

/* ---- an owner: one claim, from the claim to the last event --------------------------------------- */
inline let_go(me) {
  if :: holder == me -> holder = GONE :: else fi;
  if :: sn_holder == me -> sn_holder = GONE :: else fi;
  attempt = 0; final = false; last = false; spent = false; hold = false; ok = false; word = e_released
}

/* the owner dies: its token stays behind */
#define DIES atomic { faults > 0 -> faults--; let_go(me) }

proctype Owner(byte me) {
  byte attempt = 0;
  bool final = false, last = false, spent = false, hold = false, ok = false;
  mtype word = e_released;
end_idle:
  if
  :: atomic { rec == s_pending && !live -> snapshot(); take(me, false); remember(me) }
  :: atomic { rec == s_sendable && !live -> snapshot(); take(me, true); remember(me) }; goto publish
  :: atomic { rec == s_acknowledged && !live -> snapshot(); take(me, false); remember(me) }; goto forget
#if TRUST
  :: atomic { net_submit > 0 -> net_submit--;
       if :: hold = true :: hold = false /* a delay */ fi;
       r_trust(me, hold, ok); word = e_committed;
       if :: ok -> remember(me) :: else -> let_go(me); goto end_idle fi };
     goto stored
#else
  :: atomic { net_submit > 0 -> net_submit--; r_submit(me, ok);
       if :: ok -> ok = false; remember(me) :: else -> goto end_idle fi }
#endif
  fi;

  if
  :: DIES; goto end_idle
  :: atomic { word = e_released; goto settle_verdict }      /* no room, stopping, or the lease ends soon */
  :: atomic { word = e_unreachable; net_final = (net_final || (final && MARKER == 2)) }  /* may still arrive there */
#if GIVE_UP
  :: atomic { final -> word = e_timed_out; net_final = (net_final || MARKER == 2) }
#endif
  :: atomic { confirm(final, word);
#ifdef DELETED_EARLY        /* defect: the marker goes before the verdict is stored */
       if :: word == e_committed -> delete_business() :: else fi;
#endif
       if
       :: word == e_committed -> if :: hold = true :: hold = false /* a delay */ fi
       :: word == e_unknown && unknowns <= ATTEMPTS -> unknowns++
       :: else
       fi;
       if
       :: word == e_unknown && final ->
#ifdef UNKNOWN_IS_NO        /* defect: UNKNOWN at the limit is taken for ROLLED_BACK */
          word = e_rolled_back
#else
          word = e_given_up
#endif
       :: else
       fi }
  fi;

settle_verdict:
  if
  :: DIES; goto end_idle
  :: atomic { r_settle(me, word, hold, ok) }
  :: atomic { faults > 0 -> faults--; r_settle(me, word, hold, ok); goto settle_verdict }  /* the answer is lost */
  fi;
stored:
  if
  :: DIES; goto end_idle
  :: atomic { ok && word == e_committed && hold -> if :: !AFTER_ACK -> delete_business() :: true fi; ok = false }
  :: atomic { ok && word == e_committed && !hold -> if :: !AFTER_ACK -> delete_business() :: true fi;
       let_go(me); goto end_idle }
  :: atomic { ok && word == e_rolled_back -> if :: delete_business() :: true fi; let_go(me); goto end_idle }
  :: atomic { !ok || (word != e_committed && word != e_rolled_back) -> let_go(me); goto end_idle }
  fi;

publish:
  if
  :: DIES; goto end_idle
  :: atomic { word = e_released; hold = false }             /* no room, broker away, stopping, lease about to end */
  :: atomic {                                               /* an owner that was stopped right before continues */
       hold = false;
       assert(biz == b_committed && fate && (!said_rolled_back || (REGRESS && !ROW_KEPT)));  /* P2 */
       assert(content == 1);                                /* CORRUPTED */
       if
       :: arrive(attempt); done = true;
#ifdef MARKER_IN_MEMORY     /* defect: DONE at once, and only this owner knows that the marker is still there */
          word = e_acked
#else
          word = (AFTER_ACK -> e_acked_marked : e_acked); hold = AFTER_ACK
#endif
       :: faults > 0 -> faults--; word = e_unsure; if :: arrive(attempt) :: true fi
       :: faults > 0 -> faults--; if :: arrive(attempt) :: true fi;
#ifdef RETURNS_IGNORED      /* defect: a returned message is acknowledged as well, and only that is looked at */
          word = (AFTER_ACK -> e_acked_marked : e_acked); hold = AFTER_ACK
#else
          word = (last -> e_exhausted : e_refused)
#endif
       fi }
  fi;

settle_outcome:
  if
  :: DIES; goto end_idle
  :: atomic { r_settle(me, word, hold, ok) }
  :: atomic { faults > 0 -> faults--; r_settle(me, word, hold, ok); goto settle_outcome }  /* the answer is lost */
  fi;
  if
  :: DIES; goto end_idle
  :: atomic { ok && word == e_acked_marked -> ok = false }
  :: atomic { ok && word == e_acked && (AFTER_ACK || attempt > 1) -> if :: delete_business() :: true fi;
       let_go(me); goto end_idle }
  :: atomic { !(ok && (word == e_acked_marked || word == e_acked && (AFTER_ACK || attempt > 1))) ->
       let_go(me); goto end_idle }
  fi;

forget:
  hold = false;
  if
  :: DIES; goto end_idle
  :: atomic { word = e_released }                           /* no room, circuit open, stopping */
  :: atomic { delete_business(); word = e_marker_deleted }
  :: atomic { if :: delete_business() :: true fi;           /* failed, or the success stays unknown */
       word = (spent -> e_marker_left : e_marker_kept) }
  fi;

settle_marker:
  if
  :: DIES
  :: atomic { r_settle(me, word, false, ok); let_go(me) }
  :: atomic { faults > 0 -> faults--; r_settle(me, word, false, ok); goto settle_marker }  /* the answer is lost */
  fi;
  goto end_idle
}

/* ---- everything else that happens -------------------------------------------------------------------------------- */
proctype World() {
end:
  do
  /* the network: late and repeated calls */
  :: atomic { net_send > 0 -> net_send--; if :: r_send(1); p1() :: true fi }
  :: atomic { half_ok && faults > 0 && rec != s_none -> faults--; r_send(2); p1() }  /* the same id with other content */
  :: atomic { net_rollback > 0 -> net_rollback--; r_bring(e_rollback) }
  :: atomic { faults > 0 && net_rollback > 0 -> faults--; net_rollback++ }
  :: atomic { faults > 0 && net_submit > 0 -> faults--; net_submit++ }
  :: atomic { net_final -> net_final = false;
       if :: marker == m_none && biz != b_running -> marker = m_rolled_back :: else fi }
  /* leases */
#ifndef LEASE_NEVER_ENDS     /* defect: messages of a dead owner are held for ever */
  :: atomic { live && holder == GONE -> live = false }      /* a dead owner's lease always ends */
#endif
#ifdef PENDING_EXPIRES      /* defect: a half message is deleted when its time is over */
  :: atomic { rec == s_pending && !live -> rec = s_none; drop_notes(); p1() }
#endif
  :: atomic { live && holder != GONE && faults > 0 -> faults--; stalled = true; live = false }
  /* operators */
  :: atomic { faults > 0 && (KEPT || rec == s_acknowledged) -> faults--; r_bring(e_retry) }
  :: atomic { faults > 0 && KEPT && rec != s_sendable -> faults--; r_bring(e_discard) }
  /* a restart of the producer with markers in memory */
  :: atomic { MARKER == 0 && faults > 0 && producer_done -> faults--; marker = m_none }
#if RECEIPT_ENDS              /* the retention is longer than any call is under way */
  :: atomic { (rec == s_done || rec == s_rolled_back) && producer_done && net_send + net_submit + net_rollback == 0 ->
       rec = s_none; p1() }
#endif
#if REGRESS > 0
  :: atomic { faults > 0 && have_snap -> faults--; have_snap = false; forgot = true;
       rec = sn_rec; holder = sn_holder; live = sn_live; hurry = sn_hurry;
       confirms = sn_confirms; publishes = sn_publishes; copies = sn_copies; deletes = sn_deletes; p1();
       sn_rec = s_none; sn_holder = 0; sn_live = false; sn_hurry = false; sn_confirms = 0; sn_publishes = 0; sn_copies = 0;
       sn_deletes = 0 }
#endif
  /* STUCK: when nothing can happen any more, the message has reached a final state that an operator sees.
     LEFTOVER: deleted after the acknowledgement, the marker of a done message is gone, unless it was left after the last try */
  :: atomic { timeout ->
       assert(rec != s_pending && rec != s_sendable && rec != s_acknowledged && !live && producer_done);
       assert(!(AFTER_ACK && rec == s_done && marker == m_committed && !left)); break }
  od
}

init {
  atomic {
    run Producer();
    byte i = 1;
    do :: i <= NC -> run Owner(i); i++ :: else -> break od;
    run World()
  }
}
