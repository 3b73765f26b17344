package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// replicaTimeout is how long Create waits for replicas. A healthy replica on the same network answers in milliseconds;
// callers' deadlines are seconds.
const replicaTimeout = time.Second

// Create implements halfmsg.Intake.
func (s *Store) Create(ctx context.Context, messages []halfmsg.Message) []halfmsg.Result {
	c := s.newCreation(messages)
	name := func(i int) halfmsg.Name { return messages[i].Name }
	key := func(i int) string { return messages[i].OrderingKey }
	places := s.keyedPlaces(len(messages), name, key)
	// Messages with an ordering key are never paged: a page knows no order, and no message waits in it for another one.
	keyed, plain := split(places, func(at place) bool { return key(at.index) != "" })
	if !s.config.indexed {
		plain = c.page(ctx, plain)
	}
	c.index(ctx, plain)
	c.index(ctx, s.writePointers(ctx, keyed, name, key, c.results))
	s.tellStates(ctx, places, name, c.results)
	return assertCreated(messages, c.results)
}

// creation is a batch of messages to store.
type creation struct {
	store    *Store
	messages []halfmsg.Message
	digests  []string
	results  []halfmsg.Result
	plan     plan
}

func (s *Store) newCreation(messages []halfmsg.Message) *creation {
	n := len(messages)
	c := &creation{store: s, messages: messages, digests: make([]string, n), results: make([]halfmsg.Result, n)}
	records, e := make([][]byte, n), encoder{}
	for i := range messages {
		var err error
		c.digests[i] = messages[i].Digest()
		if records[i], err = e.encode(&messages[i], c.digests[i]); err != nil {
			// Only a header that is not UTF-8 could fail, and encoding/json takes even such headers.
			c.results[i].Err = fmt.Errorf("encoding %s: %w", messages[i].Name, err)
		}
	}
	quota := func(of place) int { return s.perShard(s.config.Quota(of.producer)) }
	c.plan = plan{
		store: s, room: 4, head: func(places []place) []any { return []any{quota(places[0])} },
		apart: func(a, b place) bool { return a.producer != b.producer && quota(a) != quota(b) },
		each: func(args []any, i int) []any {
			m := &messages[i]
			return append(args, m.ID, c.digests[i], clamp(m.ConfirmAfter, maxDue).Milliseconds(), records[i])
		},
		weight: func(i int) int { return len(records[i]) },
	}
	return c
}

// keep remembers a message that was stored at a time in milliseconds.
func (c *creation) keep(i int, now int64) {
	c.store.recent.keep(stored{message: c.messages[i], digest: c.digests[i], created: now})
}

// index stores messages with index entries.
func (c *creation) index(ctx context.Context, places []place) {
	s := c.store
	p := c.plan
	p.room, p.head = p.room+1, func(places []place) []any { return append(c.plan.head(places), s.config.HeldPerKey) }
	p.each = func(args []any, i int) []any { return append(c.plan.each(args, i), c.messages[i].OrderingKey) }
	calls := p.calls(places)
	s.runReplicated(ctx, s.scripts.create, calls)
	for _, call := range calls {
		now, _ := call.answer(len(call.items)).(int64)
		for n, i := range call.items {
			name := c.messages[i].Name
			c.results[i] = s.result(call, n, name)
			switch call.answer(n) {
			case int64(replyRepaired + codeOf[halfmsg.Pending]):
				s.logger.Warn("repaired: a record was lost, and its index entries and notes were left; they were removed "+
					"before a new message was stored under the name", "message_id", name.String())
				fallthrough
			case int64(replyStored + codeOf[halfmsg.Pending]):
				c.keep(i, now)
			}
		}
	}
}

// perShard is a shard's part of a limit; 0 stays 0, no limit.
func (s *Store) perShard(limit int) int {
	shards := len(s.keys.shards)
	return (max(0, limit) + shards - 1) / shards
}

// runReplicated makes calls that store messages and, where replicas are asked for, waits for them.
func (s *Store) runReplicated(ctx context.Context, sc *script, calls []*call) {
	if len(calls) == 0 {
		return
	}
	if s.config.MinReplicas <= 0 {
		s.pacer.urgent(ctx, s.intake, sc, calls)
		return
	}
	for master, calls := range s.byMaster(ctx, calls) {
		s.pacer.urgent(ctx, master, sc, calls)
		s.awaitReplicas(ctx, master, calls)
	}
}

// byMaster groups calls by their target server. A call without a known master gets its error here.
func (s *Store) byMaster(ctx context.Context, calls []*call) map[redis.UniversalClient][]*call {
	masters := map[redis.UniversalClient][]*call{}
	for _, c := range answerable(ctx, s.intake, calls) {
		master, err := masterOf(ctx, s.intake, c)
		if err != nil {
			c.err = translate(err)
			continue
		}
		masters[master] = append(masters[master], c)
	}
	return masters
}

// smallWrite is a write that a full Redis takes as well.
const smallWrite = "#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1], '', 'PX', ARGV[1])"

// awaitReplicas turns the success of calls that reached too few replicas into ErrUncertain. WAIT covers the writes of
// its own connection, so a small write goes to the same server right before WAIT and after the calls. So WAIT also
// covers a repeated call that wrote nothing this time. The message may have filled Redis.
func (s *Store) awaitReplicas(ctx context.Context, master redis.UniversalClient, calls []*call) {
	pipe := master.Pipeline()
	pipe.Eval(ctx, smallWrite, []string{waitKey(calls[0].shard)}, replicaTimeout.Milliseconds())
	wait := pipe.Do(ctx, "wait", s.config.MinReplicas, replicaTimeout.Milliseconds())
	_, err := pipe.Exec(ctx)
	have, _ := wait.Int()
	if err == nil && have >= s.config.MinReplicas {
		return
	}
	for _, c := range calls {
		switch {
		case c.err != nil:
		case err != nil:
			c.err = fmt.Errorf("%w: waiting for replicas: %w", halfmsg.ErrUncertain, err)
		default:
			c.err = fmt.Errorf("%w: stored, but only %d of %d replicas have it",
				halfmsg.ErrUncertain, have, s.config.MinReplicas)
		}
	}
}

// Submit implements halfmsg.Intake.
func (s *Store) Submit(ctx context.Context, names []halfmsg.Name, lease time.Duration) []halfmsg.Submitted {
	return assertSubmitted(halfmsg.EventSubmit, names, s.submit(ctx, names, submitting{
		script: s.scripts.submit, event: halfmsg.EventSubmit, lease: lease, room: 2,
		each: func(args []any, id string, known *stored) []any { return append(args, id, known.when()) },
		read: s.submitted,
	}))
}

// SubmitTrusted implements halfmsg.Intake.
func (s *Store) SubmitTrusted(ctx context.Context, names []halfmsg.Name, lease time.Duration) []halfmsg.Submitted {
	return assertSubmitted(halfmsg.EventSubmitTrusted, names, s.submit(ctx, names, submitting{
		script: s.scripts.trust, event: halfmsg.EventSubmitTrusted, lease: lease, room: 3,
		each: func(args []any, id string, known *stored) []any {
			return append(args, id, known.when(), clamp(known.message.Delay, maxDue).Milliseconds())
		},
		read: s.trusted,
	}))
}

// submitting describes how Submits are stored: the script, the event, the arguments for each message, and the reader of
// the reply.
type submitting struct {
	script *script
	event  halfmsg.Event
	lease  time.Duration
	room   int
	each   func(args []any, id string, known *stored) []any
	read   func(c *call, n int, name halfmsg.Name, token string, known *stored) halfmsg.Submitted
}

func (s *Store) submit(ctx context.Context, names []halfmsg.Name, how submitting) []halfmsg.Submitted {
	b := submission{
		store: s, names: names, how: how, known: make([]stored, len(names)), results: make([]halfmsg.Submitted, len(names)),
	}
	for i, name := range names {
		b.known[i] = s.recent.takeMessage(name)
	}
	key := func(i int) string { return b.known[i].message.OrderingKey }
	name := func(i int) halfmsg.Name { return names[i] }
	keyed, places := split(s.keyedPlaces(len(names), name, key), func(at place) bool { return key(at.index) != "" })
	// A page falls due after pageLife. Before that, the end of a shorter lease would not be seen.
	if !s.config.indexed && how.lease >= pageLife {
		places = b.submitPaged(ctx, places)
	}
	b.submitIndexed(ctx, places)
	b.submitIndexed(ctx, keyed)
	missing := func(i int) bool { return isNotFound(b.results[i].Err) }
	s.follow(ctx, len(names), name, missing, func(places []place) { b.submitIndexed(ctx, places) })
	s.setAsideSubmitted(ctx, b.results)
	return b.results
}

// submission is a batch of Submits: the names, what the store remembers of each message, and the results.
type submission struct {
	store   *Store
	names   []halfmsg.Name
	known   []stored
	how     submitting
	results []halfmsg.Submitted
}

// claimRoom is how many bytes of records one call claims at most.
func claimRoom(places []place) int {
	return maxClaimBytes / (1 + shardsOf(places) + len(places)/maxCallItems)
}

// submitIndexed submits messages that are not paged, or that are not to stay so.
func (b *submission) submitIndexed(ctx context.Context, places []place) {
	s, how := b.store, b.how
	if len(places) == 0 {
		return
	}
	token := s.newToken()
	p := plan{
		store: s, room: how.room, looks: true,
		head: always(nextStates(how.event), token, leaseMS(how.lease), claimRoom(places)),
		each: func(args []any, i int) []any { return how.each(args, b.names[i].ID, &b.known[i]) },
	}
	calls := p.calls(places)
	s.pacer.urgent(ctx, s.intake, how.script, calls)
	for _, c := range calls {
		for n, i := range c.items {
			b.results[i] = how.read(c, n, b.names[i], token, &b.known[i])
		}
	}
}

// submitted reads the reply about one message. An unreadable record gives both a claim and an error.
func (s *Store) submitted(c *call, n int, name halfmsg.Name, token string, known *stored) halfmsg.Submitted {
	ms, _ := c.answer(len(c.items)).(int64)
	if fields, is := c.answer(n).([]any); is && c.err == nil {
		claim, err := s.claim(fields, halfmsg.Pending, token)
		claim.ClaimedAt = timeAt(ms)
		return halfmsg.Submitted{Result: halfmsg.Result{State: halfmsg.Pending, Err: err}, Claim: &claim}
	}
	r := halfmsg.Submitted{Result: s.result(c, n, name)}
	if c.answer(n) == int64(replyHeld+codeOf[halfmsg.Pending]) {
		r.Claim = known.claim(token, timeAt(ms))
	}
	return refusing(r)
}

// trusted reads the reply about one message whose Submit is the verdict. An unreadable record gives both a claim and an
// error.
func (s *Store) trusted(c *call, n int, name halfmsg.Name, token string, known *stored) halfmsg.Submitted {
	r := halfmsg.Submitted{Result: halfmsg.Result{State: halfmsg.Sendable}}
	fields, _ := c.answer(n).([]any)
	ms, _ := c.answer(len(c.items)).(int64)
	switch {
	case c.err == nil && len(fields) == claimFields:
		claim, err := s.claim(fields, halfmsg.Sendable, token)
		claim.ClaimedAt = timeAt(ms)
		r.Claim, r.Err = &claim, err
		return r
	case c.err == nil && len(fields) > 0:
		r.Claim = unclaimed(name, fields)
		return r
	}
	r.Result = s.result(c, n, name)
	switch c.answer(n) {
	case int64(replyHeld + codeOf[halfmsg.Sendable]):
		r.Claim = known.sendable(token, timeAt(ms))
	case int64(replyStored + codeOf[halfmsg.Sendable]):
		r.Claim = known.sendable("", timeAt(ms))
	}
	return refusing(r)
}

// unclaimed is a message of which trust.lua replies with the first line alone; nil for an unreadable line. The lease
// holder of the message finds the damage, too, and sets the message aside.
func unclaimed(name halfmsg.Name, fields []any) *halfmsg.Claim {
	claim := halfmsg.Claim{Message: halfmsg.Message{Name: name}, State: halfmsg.Sendable}
	text, _ := fields[len(fields)-1].(string)
	t, err := decodeLine([]byte(text), halfmsg.Sendable, &claim.Message)
	if err != nil {
		return nil
	}
	claim.CreatedAt, claim.Fingerprint = t.at, t.digest
	return &claim
}

// refusing gives a Submit after ROLLED_BACK its error.
func refusing(r halfmsg.Submitted) halfmsg.Submitted {
	if r.State == halfmsg.RolledBack && r.Err == nil {
		r.Err = halfmsg.ErrIllegal
	}
	return r
}

// setAsideSubmitted sets aside the messages that were claimed and whose records cannot be read.
func (s *Store) setAsideSubmitted(ctx context.Context, results []halfmsg.Submitted) {
	for i := range results {
		if r := results[i]; r.Claim != nil && r.Err != nil {
			state := s.setAside(ctx, *r.Claim, r.Err)
			results[i] = halfmsg.Submitted{Result: halfmsg.Result{State: state, Err: r.Err}}
		}
	}
}

// Rollback implements halfmsg.Intake.
func (s *Store) Rollback(ctx context.Context, names []halfmsg.Name) []halfmsg.Result {
	word := halfmsg.Settlement{Event: halfmsg.EventRollback}
	return assertMoved(word.Event, names, s.bring(ctx, word, names, rules))
}

func shardsOf(places []place) int {
	n := 0
	for i := range places {
		if i == 0 || places[i].shard != places[i-1].shard {
			n++
		}
	}
	return n
}

// clamp keeps a time span between nothing and most.
func clamp(d, most time.Duration) time.Duration {
	return min(max(d, 0), most)
}

// leaseMS is a lease in milliseconds, at least one.
func leaseMS(d time.Duration) int64 {
	return max(1, clamp(d, maxLease).Milliseconds())
}

// number reads a count from the notes; a missing count is 0.
func number(text any) int64 {
	s, _ := text.(string)
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
