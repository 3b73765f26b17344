package faults

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/redis/redismarker"
	"github.com/msghandler/msghandler/test/servers"
)

// producerProcess is a producer that is killed and started again, at the same address and with the same journal.
type producerProcess struct {
	mortal
	ledger *Ledger
	db     *sql.DB
	deaths int
	stop   func()
}

func newProducerProcess(w *world, name string) *producerProcess {
	w.t.Helper()
	p := &producerProcess{ledger: w.ledger, stop: func() {}, mortal: mortal{
		Name: name, Journal: filepath.Join(w.t.TempDir(), name), Listen: servers.Addresses(w.t, 1)[0],
		Coordinators: w.targets(),
	}}
	w.t.Cleanup(func() { p.stop() })
	return p
}

// newMortalShop is a producer with a database, which this process reads too.
func newMortalShop(w *world, name string, d database) *producerProcess {
	w.t.Helper()
	p := newProducerProcess(w, name)
	p.Database, p.db = &d, d.opened(w.t, orderTable)
	return p
}

// start begins a life; ended is how it ends.
func (p *producerProcess) start() (ended <-chan error, err error) {
	config, err := json.Marshal(&p.mortal)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), mortalVariable+"="+string(config))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe() // ends with this life
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	gone := make(chan struct{})
	go func() {
		done <- cmd.Wait()
		close(gone)
	}()
	p.stop = func() {
		stdin.Close()
		_ = cmd.Process.Kill() // the process may be gone
		<-gone
	}
	return done, nil
}

// dieAt lives until the process has died at a step.
func (p *producerProcess) dieAt(step string, n int) error {
	p.Step, p.N = step, n
	ended, err := p.start()
	if err != nil {
		return err
	}
	select {
	case err = <-ended:
	case <-time.After(patience):
		return fmt.Errorf("%s has not come %s", p.Name, step)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		return fmt.Errorf("%s was to be killed %s: %w", p.Name, step, err)
	}
	p.ledger.Fault(fmt.Sprintf("kill -9 of producer %s, %s", p.Name, step))
	p.deaths++
	return nil
}

// liveOn begins a life without an end, and returns when the process begins no new business.
func (p *producerProcess) liveOn() error {
	p.Step = ""
	if _, err := p.start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); wait(50 * time.Millisecond) {
		lines, _, err := readJournal(p.Journal)
		if err != nil {
			return err
		}
		if slices.Contains(lines, entry{what: lineSettled}) {
			return nil
		}
	}
	return fmt.Errorf("%s does not end its open businesses", p.Name)
}

// tell brings the rows of its database into the ledger. tell may run again: the first word counts there too.
func (p *producerProcess) tell(t *testing.T) (surprises []string) {
	t.Helper()
	lines, _, err := readJournal(p.Journal)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		key := p.key(l.id)
		switch l.what {
		case lineSending:
			p.ledger.Sending(key, NewContent(exchange, p.Name, headersOf(l.id), mortalBody(l.id)))
		case lineAccepted:
			p.ledger.Accepted(key)
		case lineEnded:
			p.ledger.Decide(key, fateOf[l.more])
		case lineSaid:
			p.ledger.Said(key, fateOf[l.more])
		case lineSurprised:
			surprises = append(surprises, key+": "+l.more)
		}
	}
	if p.db == nil {
		return surprises
	}
	there, err := orders(t.Context(), p.db)
	if err != nil {
		t.Fatal(err)
	}
	for id := range there {
		if p.ledger.Decide(p.key(id), Committed) != Committed {
			surprises = append(surprises, p.key(id)+": there is an order of what never commits")
		}
	}
	return surprises
}

// marked lists the messages whose committed markers are still there.
func (p *producerProcess) marked(ctx context.Context) ([]string, error) {
	if p.db != nil {
		return markedTable(ctx, p.db, p.Name)
	}
	client := redis.NewClient(&redis.Options{Addr: p.Redis, ContextTimeoutEnabled: true})
	defer client.Close()
	markers, err := redismarker.New(redismarker.Config{Client: client, Producer: p.Name})
	if err != nil {
		return nil, err
	}
	return markedIn(ctx, markers, p.Name, p.ledger.IDs(p.Name))
}

func (p *producerProcess) key(id string) string { return p.Name + "/" + id }

// killProducersByHTTP is killProducers, where the coordinators call by HTTP.
func killProducersByHTTP(_ context.Context, w *world, random *rand.Rand) {
	killEach(w, random, true)
}

// killProducers lets three producers die at each step of their life, in random order: two whose markers are part of
// their transactions, and a third whose markers are in Redis.
func killProducers(_ context.Context, w *world, random *rand.Rand) { killEach(w, random, false) }

func killEach(w *world, random *rand.Rand, byHTTP bool) {
	w.processes = []*producerProcess{
		newMortalShop(w, "mortal-sqlite", newSQLite(w.t)), newMortalShop(w, "mortal-postgresql", newPostgreSQL(w.t)),
		newProducerProcess(w, "mortal-redis"),
	}
	w.processes[2].Redis = servers.Redis(w.t).Addr
	lives := make(chan error)
	for _, p := range w.processes {
		p.HTTP = byHTTP
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		go func() {
			var err error
			for _, i := range own.Perm(len(steps)) {
				if err == nil {
					err = p.dieAt(steps[i], 1+own.IntN(8))
				}
			}
			lives <- errors.Join(err, p.liveOn())
		}()
	}
	for range w.processes {
		if err := <-lives; err != nil {
			w.t.Error(err)
		}
	}
	for _, p := range w.processes {
		p.tell(w.t)
	}
}

// diedEverywhere judges again by the final rows of the producers' databases.
func diedEverywhere(t *testing.T, w *world, _ *load, end End) {
	t.Helper()
	for _, p := range w.processes {
		if p.deaths != len(steps) {
			t.Errorf("%s has died %d times", p.Name, p.deaths)
		}
		for _, s := range p.tell(t) {
			t.Errorf("a surprise of its user: %s", s)
		}
		t.Logf("%s: %d ids, killed %d times", p.Name, len(w.ledger.IDs(p.Name)), p.deaths)
	}
	for _, f := range Check(w.ledger, end) {
		t.Errorf("%s %s: %s\n%s", f.Verdict, f.Key, f.Words, w.ledger.History(f.Key))
	}
}
