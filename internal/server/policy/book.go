package policy

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Errors of a producer that does too much. The call stored nothing, and a later repeat may succeed.
var (
	ErrRate  = errors.New("the producer sends too much")
	ErrBytes = errors.New("the producer has too many bytes unfinished")
)

const (
	// maxUses bounds the producers that are counted apart: callers choose names. All others share one count.
	maxUses = 10_000
	// idleAfter is when a producer without calls is no longer looked after.
	idleAfter = 10 * time.Second
)

// Book has the rules of producers, and counts what they hold at this coordinator. A nil Book has no rules. It is safe
// for concurrent use.
type Book struct {
	set atomic.Pointer[Set] // nil without any rule

	mu   sync.Mutex
	uses map[string]*use
	// tidied is when idle producers were forgotten last.
	tidied time.Time
}

// NewBook returns a Book without rules.
func NewBook() *Book { return &Book{uses: map[string]*use{}} }

// Use replaces all rules at once. What producers hold goes on counting.
func (b *Book) Use(set Set) {
	named := map[string]Rules{}
	none := set.Others.empty()
	for name, r := range set.Named {
		named[name], none = r, none && r.empty()
	}
	if none {
		b.set.Store(nil)
		return
	}
	b.set.Store(&Set{named, set.Others})
}

// Producer is the policy of one producer. A nil Producer may do everything.
type Producer struct {
	name  string
	rules *Rules
	use   *use // nil where nothing is counted
}

// Of returns the policy of a producer; nil where it has none.
func (b *Book) Of(name string) *Producer {
	if b == nil {
		return nil
	}
	set := b.set.Load()
	if set == nil {
		return nil
	}
	r, known := set.Named[name]
	if !known {
		r = set.Others
	}
	if r.empty() {
		return nil
	}
	p := &Producer{name: name, rules: &r}
	if r.counts() {
		p.use = b.useOf(name)
	}
	return p
}

// BoundsRate says whether a producer may not send more than a number of messages a second.
func (b *Book) BoundsRate(name string) bool {
	set := b.set.Load()
	if set == nil {
		return false
	}
	r, known := set.Named[name]
	if !known {
		r = set.Others
	}
	return r.CallsPerSecond > 0
}

func (b *Book) useOf(name string) *use {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.uses) >= maxUses && b.uses[name] == nil {
		b.forgetIdle(time.Now())
		if len(b.uses) >= maxUses {
			name = ""
		}
	}
	u := b.uses[name]
	if u == nil {
		u = &use{}
		b.uses[name] = u
	}
	u.lastCall.Store(time.Now().UnixNano())
	return u
}

// forgetIdle makes room for other producers, at most once in idleAfter: looking at all of them takes a while.
func (b *Book) forgetIdle(now time.Time) {
	if now.Sub(b.tidied) < idleAfter {
		return
	}
	b.tidied = now
	for name, u := range b.uses {
		if u.idle() {
			delete(b.uses, name)
		}
	}
}

// Weigh asks for the bytes that unfinished messages of producers have in the store, of those with a limit and with
// calls lately. An error leaves the earlier numbers in use.
func (b *Book) Weigh(weigh func(producers []string) ([]int64, error)) error {
	var names []string
	var uses []*use
	for name, u := range b.toWeigh() {
		names, uses = append(names, name), append(uses, u)
	}
	if len(names) == 0 {
		return nil
	}
	marks := make([]int64, len(uses))
	for i, u := range uses {
		marks[i] = u.mark()
	}
	bytes, err := weigh(names)
	if err != nil {
		return err
	}
	for i, u := range uses {
		u.weighed(bytes[i], marks[i])
	}
	return nil
}

func (b *Book) toWeigh() map[string]*use {
	set := b.set.Load()
	if set == nil {
		return nil
	}
	all := map[string]*use{}
	for name, r := range set.Named {
		if r.MaxBytes > 0 {
			all[name] = b.useOf(name) // before its first call, so that a start does not begin with nothing
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, u := range b.uses {
		if _, named := set.Named[name]; !named && name != "" && set.Others.MaxBytes > 0 && !u.idle() {
			all[name] = u
		}
	}
	return all
}

// use is what a producer holds at this coordinator.
type use struct {
	lastCall atomic.Int64 // in nanoseconds since 1970

	mu sync.Mutex
	// limiter is nil without a limit of calls.
	limiter *rate.Limiter
	// bytes were in the store at the last look. Since then this coordinator has stored so many bytes, and is storing some.
	bytes, stored, storing int64
}

func (u *use) idle() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.storing == 0 && time.Since(time.Unix(0, u.lastCall.Load())) > idleAfter
}

// mark is what is stored before a look; weighed takes the result of the look.
func (u *use) mark() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.stored
}

func (u *use) weighed(bytes, mark int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bytes, u.stored = bytes, u.stored-mark
}

// Take counts a message that is about to be stored, of so many bytes. Done must follow where it returns no error; the
// errors are ErrRate and ErrBytes.
func (p *Producer) Take(size int) error {
	if p == nil || p.use == nil {
		return nil
	}
	u := p.use
	u.mu.Lock()
	defer u.mu.Unlock()
	if most := p.rules.MaxBytes; most > 0 && u.bytes+u.stored+u.storing+int64(size) > most {
		return fmt.Errorf("%w: %s", ErrBytes, p.name)
	}
	if !u.allows(p.rules) {
		return fmt.Errorf("%w: %s", ErrRate, p.name)
	}
	u.storing += int64(size)
	return nil
}

// allows counts a call against the limit of calls.
func (u *use) allows(r *Rules) bool {
	if r.CallsPerSecond == 0 {
		u.limiter = nil
		return true
	}
	limit, burst := rate.Limit(r.CallsPerSecond), r.CallsPerSecond
	if u.limiter == nil {
		u.limiter = rate.NewLimiter(limit, burst)
	}
	if u.limiter.Limit() != limit || u.limiter.Burst() != burst { // the rules have changed
		u.limiter.SetLimit(limit)
		u.limiter.SetBurst(burst)
	}
	return u.limiter.Allow()
}

// Done follows Take, when the message is stored or has failed.
func (p *Producer) Done(size int, stored bool) {
	if p == nil || p.use == nil {
		return
	}
	p.use.mu.Lock()
	defer p.use.mu.Unlock()
	p.use.storing -= int64(size)
	if stored {
		p.use.stored += int64(size)
	}
}
