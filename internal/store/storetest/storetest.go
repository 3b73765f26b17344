// Package storetest is the promise of halfmsg's stores as a test suite, which every store must pass.
package storetest

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Store is all roles of a store together.
type Store interface {
	halfmsg.Intake
	halfmsg.ConfirmStore
	halfmsg.SendStore
	halfmsg.Inspector
}

// Harness is a store under test, with further hooks for tests.
type Harness struct {
	// Store is empty and not shared.
	Store Store
	// Advance moves the store's clock. If nil, the clock is real and tests wait.
	Advance func(time.Duration)
	// Expiry is the time until the stored message expires; 0 means never.
	Expiry func(t *testing.T, name halfmsg.Name) time.Duration
	// Retention is how long traces are kept.
	Retention time.Duration
}

// patience is how long a test waits for a store whose clock runs by itself.
const patience = 20 * time.Second

// A lease longer than a test, and a lease that a test waits for.
const (
	long  = 10 * time.Minute
	short = 40 * time.Millisecond
)

// tests are the tests of the suite.
var tests = []struct {
	name string
	run  func(*suite)
}{
	{"every state and every event", everyMove},
	{"a refused settlement leaves the record", foreignTokens},
	{"create is idempotent", createTwice},
	{"a recall stores nothing", recallStoresNothing},
	{"create in mixed batches", createMixed},
	{"content survives", contentSurvives},
	{"names with every allowed character", oddNames},
	{"large batches", largeBatches},
	{"submit claims a message without an owner", submitClaims},
	{"submit of a leased message counts on unknown", submitHurries},
	{"submit wakes an abandoned message", submitAbandoned},
	{"submit during the final question counts", submitDuringFinal},
	{"a trusted submit is the verdict", trusted},
	{"a trusted submit takes a leased message", trustedHeld},
	{"a trusted submit of a message with a delay", trustedDelayed},
	{"a trusted submit of an abandoned message", trustedAbandoned},
	{"trusted submits in mixed batches", trustedMixed},
	{"a trusted submit and a rollback at once", trustedRace},
	{"a message is given up for its age", timeLimit},
	{"submit at the time limit counts", submitAtTheLimit},
	{"retry while an owner works", retryHeld},
	{"rollback", rollback},
	{"settle in mixed batches", settleMixed},
	{"settle twice in one batch", settleInOneBatch},
	{"settle is idempotent", settleTwice},
	{"attempts and causes are counted", attempts},
	{"a lost owner's copy is counted", lostOwner},
	{"a lease that ended is refused", leaseEnded},
	{"hold keeps the lease", hold},
	{"delay", delayed},
	{"due longest first", oldestFirst},
	{"quotas", quotas},
	{"sendable claims are shared fairly", fairSend},
	{"each message has one owner", oneOwner},
	{"claims are for some brokers", someBrokers},
	{"messages for other brokers delay no claim", otherBrokers},
	{"a parked message is claimed once", parkedOnce},
	{"targets left out stand before no other", leftOutTargets},
	{"old messages are claimed in spite of their target", leftOutUntilOld},
	{"a parked message has lost its owner", parkedOwner},
	{"an acknowledged message keeps what its marker needs", acknowledged},
	{"an acknowledged message without a target keeps what its marker needs", acknowledgedUntargeted},
	{"acknowledged messages of an owner that died", acknowledgedOrphans},
	{"concurrent creates of one name", concurrentCreates},
	{"listing pages", listing},
	{"listing while others move", listingMoves},
	{"listing what matches", listingMatches},
	{"samples", samples},
	{"finding by id", finding},
	{"stats", stats},
	{"expiry only when finished", expiry},
	{"discard leaves nothing", discard},
	{"discard spares what has moved on", discardFrom},
	{"a timeline tells what was not ordinary", story},
	{"every event is told, or not, as the table says", everyTold},
	{"a timeline names who found it out", tellers},
	{"a timeline is what the model says", likeTheModel},
	{"a long outage is one line", longOutage},
	{"a timeline ends with its record", storiesEnd},
	{"a chain is published in its order", chainInOrder},
	{"a trusted submit waits for its turn", chainTrusted},
	{"a chain goes on when its first message ends", chainGoesOn},
	{"a retry waits for its turn", chainRetry},
	{"a lost lease frees no successor", chainLostLease},
	{"a committed message awaits those before it", chainAwaits},
	{"a chain ends and commits in one batch", chainBatch},
	{"a chain is bounded", chainBound},
	{"a name belongs to one key", chainNames},
	{"empty batches", emptyBatches},
}

// Run runs the suite. For each test open returns an empty store, with its clean-up in t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(&suite{T: t, Harness: open(t)}) })
	}
}

// suite is the store of a test, with shorthands.
type suite struct {
	*testing.T
	Harness
}

func message(producer, id string) halfmsg.Message {
	return halfmsg.Message{
		Name: halfmsg.Name{
			Producer: producer,
			ID:       id,
		}, Exchange: "orders", RoutingKey: "order.paid", ContentType: "text/plain",
		Headers: map[string]string{"a": "1", "b": "2"}, Body: []byte("body of " + id), CallbackTarget: "dns:///orders:9000",
		MarkerStore: "k3f9a2b7c1d0", ConfirmAfter: time.Hour,
		Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

// messages makes n messages of a producer.
func messages(producer string, n int) []halfmsg.Message {
	all := make([]halfmsg.Message, n)
	for i := range all {
		all[i] = message(producer, fmt.Sprintf("%04d", i))
	}
	return all
}

func names(messages []halfmsg.Message) []halfmsg.Name {
	all := make([]halfmsg.Name, len(messages))
	for i := range messages {
		all[i] = messages[i].Name
	}
	return all
}

// create stores messages and fails the test if any is refused.
func (s *suite) create(messages ...halfmsg.Message) {
	s.Helper()
	for i, r := range s.Store.Create(s.Context(), messages) {
		if r.Err != nil || r.State != halfmsg.Pending {
			s.Fatalf("create %s: %v, %v", messages[i].Name, r.State, r.Err)
		}
	}
}

// submit claims free messages.
func (s *suite) submit(lease time.Duration, names ...halfmsg.Name) []halfmsg.Claim {
	s.Helper()
	claims := make([]halfmsg.Claim, len(names))
	for i, r := range s.Store.Submit(s.Context(), names, lease) {
		if r.Err != nil || r.Claim == nil {
			s.Fatalf("submit %s: %v, %v, claimed: %t", names[i], r.State, r.Err, r.Claim != nil)
		}
		claims[i] = *r.Claim
	}
	return claims
}

// settleClaim stores an owner's outcome and fails the test if the outcome is refused.
func (s *suite) settleClaim(
	claim halfmsg.Claim, event halfmsg.Event, options ...func(*halfmsg.Settlement),
) halfmsg.State {
	s.Helper()
	r := s.word(claim, event, options...)
	if r.Err != nil {
		s.Fatalf("%s on %s: %v, %v", event, claim.Name, r.State, r.Err)
	}
	return r.State
}

func (s *suite) word(claim halfmsg.Claim, event halfmsg.Event, options ...func(*halfmsg.Settlement)) halfmsg.Result {
	s.Helper()
	settlement := halfmsg.Settlement{Name: claim.Name, OrderingKey: claim.OrderingKey, Token: claim.Token, Event: event}
	for _, option := range options {
		option(&settlement)
	}
	return s.Store.Settle(s.Context(), []halfmsg.Settlement{settlement})[0]
}

func holding(d time.Duration) func(*halfmsg.Settlement) {
	return func(s *halfmsg.Settlement) { s.Hold = d }
}

func after(d time.Duration) func(*halfmsg.Settlement) {
	return func(s *halfmsg.Settlement) { s.After = d }
}

func because(cause string) func(*halfmsg.Settlement) {
	return func(s *halfmsg.Settlement) { s.Cause = cause }
}

func (s *suite) get(name halfmsg.Name) halfmsg.Record {
	s.Helper()
	r, err := s.Store.Get(s.Context(), name)
	if err != nil {
		s.Fatalf("get %s: %v", name, err)
	}
	return r
}

// state is the state of a message, None when there is none.
func (s *suite) state(name halfmsg.Name) halfmsg.State {
	r, _ := s.Store.Get(s.Context(), name)
	return r.State
}

// bring puts a message into a state. If the state has leases, the message is claimed and the claim returned.
func (s *suite) bring(m halfmsg.Message, state halfmsg.State) halfmsg.Claim {
	s.Helper()
	if state == halfmsg.None {
		return halfmsg.Claim{Message: m, Token: "nobody/0"}
	}
	s.create(m)
	claim := s.submit(long, m.Name)[0]
	switch state {
	case halfmsg.RolledBack:
		s.settleClaim(claim, halfmsg.EventRolledBack)
	case halfmsg.Abandoned:
		s.settleClaim(claim, halfmsg.EventGivenUp)
	case halfmsg.Sendable, halfmsg.Acknowledged, halfmsg.Done, halfmsg.Dead:
		s.settleClaim(claim, halfmsg.EventCommitted, holding(long))
	}
	switch state {
	case halfmsg.Acknowledged:
		s.settleClaim(claim, halfmsg.EventAckedMarked, holding(long))
	case halfmsg.Done:
		s.settleClaim(claim, halfmsg.EventAcked)
	case halfmsg.Dead:
		s.settleClaim(claim, halfmsg.EventExhausted)
	}
	if got := s.state(m.Name); got != state {
		s.Fatalf("%s was to be brought to %s and is %s", m.Name, state, got)
	}
	claim.State = state
	return claim
}

// sendable makes messages SENDABLE and hands them back.
func (s *suite) sendable(messages ...halfmsg.Message) {
	s.Helper()
	s.create(messages...)
	claims := s.submit(long, names(messages)...)
	settlements := make([]halfmsg.Settlement, len(claims))
	for i, claim := range claims {
		settlements[i] = halfmsg.Settlement{
			Name: claim.Name, Token: claim.Token, Event: halfmsg.EventCommitted, After: claim.Delay,
		}
	}
	for i, r := range s.Store.Settle(s.Context(), settlements) {
		if r.Err != nil {
			s.Fatalf("committed on %s: %v, %v", claims[i].Name, r.State, r.Err)
		}
	}
}

// passes lets the store's clock run for d, and then until cond holds.
func (s *suite) passes(d time.Duration, what string, cond func() bool) {
	s.Helper()
	if s.Advance != nil {
		s.Advance(d + time.Millisecond)
		if !cond() {
			s.Fatalf("not after %v: %s", d, what)
		}
		return
	}
	deadline := time.Now().Add(d + patience)
	for !cond() {
		if time.Now().After(deadline) {
			s.Fatalf("not within %v: %s", d+patience, what)
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

// claimPending claims the due messages of a producer.
func (s *suite) claimPending(producer string, n int, lease time.Duration) []halfmsg.Claim {
	s.Helper()
	claims, err := s.Store.ClaimPending(s.Context(), map[string]int{producer: n}, lease)
	if err != nil {
		s.Fatalf("claim pending: %v", err)
	}
	return claims
}

func (s *suite) claimSendable(n int, lease time.Duration) []halfmsg.Claim {
	s.Helper()
	claims, err := s.Store.ClaimSendable(s.Context(), n, lease)
	if err != nil {
		s.Fatalf("claim sendable: %v", err)
	}
	return claims
}

// untouched fails the test if do changes a message.
func (s *suite) untouched(name halfmsg.Name, do func()) {
	s.Helper()
	before, errBefore := s.Store.Get(s.Context(), name)
	do()
	after, errAfter := s.Store.Get(s.Context(), name)
	if !reflect.DeepEqual(before, after) || (errBefore == nil) != (errAfter == nil) {
		s.Errorf("%s was changed:\nbefore %+v, %v\nafter  %+v, %v", name, before, errBefore, after, errAfter)
	}
}
