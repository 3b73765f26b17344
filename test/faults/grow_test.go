package faults

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// newPrefix is the prefix of the keys that the page gives to data with another number of shards.
const newPrefix = "msghandler-16"

// TestPageChangesShards demands commands of the page; the row F51_shards runs them.
func TestPageChangesShards(t *testing.T) {
	demandCommands(t, movePage, newPrefix, "MSGHANDLER_REDIS_SHARDS=16", "no messages")
}

// TestPageScalesConsumers demands commands of docs/run/change.md; the row F51_consumers runs them.
func TestPageScalesConsumers(t *testing.T) {
	demandCommands(t, movePage, "start payments@", "stop payments@")
}

// fleet is one process of each user, and how many ids they are at.
type fleet struct {
	users  []user
	acting sync.WaitGroup
}

// deployed is the fleet that begins the next id. Done of its acting ends the id.
func (l *load) deployed() *fleet {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fleet == nil {
		l.fleet = &fleet{users: l.users}
	}
	l.fleet.acting.Add(1)
	return l.fleet
}

// redeploy has a new fleet begin all ids from now on, at the coordinators that the world has now, and returns when the
// former fleet has finished its ids. Both have the same databases.
func (l *load) redeploy(w *world) {
	w.t.Helper()
	next := &fleet{}
	for _, u := range l.users {
		switch u := u.(type) {
		case *service:
			next.users = append(next.users, newService(w, u.name, u.markers))
		case *shop:
			s := &shop{database: u.database, db: u.db, store: u.store, service: makeService(w, u.name, u.store)}
			s.send = s.sell
			s.serve(w, nil)
			next.users = append(next.users, s)
		case *plain:
			next.users = append(next.users, newPlain(w, u.name))
		}
	}
	l.mu.Lock()
	former := l.fleet
	l.fleet = next
	l.mu.Unlock()
	former.acting.Wait()
	l.users = append(l.users, next.users...) // their observations count too
}

// changeShards has new coordinators with another number of shards take over, with the commands of the page.
func changeShards(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	former := w.coordinators
	settings := filepath.Join(w.t.TempDir(), "environment") // of the new coordinators' machines
	systemctl := func(args []string) string {
		w.ledger.Fault("systemctl " + strings.Join(args, " "))
		switch strings.Join(args, " ") {
		case "start msghandler":
			w.addCoordinators(settings)
		case "restart orders":
			w.load.redeploy(w)
		case "-H coordinator-1 stop msghandler":
			for _, c := range former {
				w.stopInTime(c)
			}
		default:
			w.t.Fatalf("the test does not know systemctl %v", args)
		}
		return ""
	}
	walk{w: w, words: []string{
		"/etc/msghandler/environment", settings, "coordinator-1:9090", former[0].grpc,
	}, programs: map[string]func([]string) string{"systemctl": systemctl}}.types(
		pageBlocks(w.t, movePage, "TestPageChangesShards")[0])
	pause(ctx, time.Second)
}

// addCoordinators starts as many coordinators as there are, with the settings of a file besides. They take the place of
// those that there are.
func (w *world) addCoordinators(settings string) {
	w.t.Helper()
	text, err := os.ReadFile(settings)
	must.Succeed(w.t, err)
	w.options.settings = append(w.options.settings, strings.Fields(string(text))...)
	var added []*coordinator
	for range w.coordinators {
		addresses := servers.Addresses(w.t, 2)
		// The deliveries of the others are not in their counts.
		c := &coordinator{
			grpc: addresses[0], http: addresses[1], log: filepath.Join(w.t.TempDir(), "coordinator"), ended: true,
		}
		w.wire(c)
		w.start(c)
		w.t.Cleanup(func() { _ = w.end(c, syscall.SIGKILL) })
		c.Ready(c.http)
		added = append(added, c)
	}
	w.coordinators = added
}

// storedInShards demands that the data are in all 16 shards of the new coordinators.
func storedInShards(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	tags := map[string]bool{}
	keys := w.redis.CLI("--scan", "--pattern", newPrefix+":*:m:*")
	for _, tag := range regexp.MustCompile(`(?m)^`+newPrefix+`:\{(\w+)\}`).FindAllStringSubmatch(keys, -1) {
		tags[tag[1]] = true
	}
	if len(tags) != 16 {
		t.Errorf("messages were stored in %d shards", len(tags))
	}
}

// scaleConsumers starts four more consumers, and then stops all but two of the new ones, with the commands of the page.
func scaleConsumers(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	walk{w: w, words: []string{
		"-p /", "-p " + w.broker.Name, "-cx payments", "-cx " + queue,
	}, programs: map[string]func([]string) string{
		"systemctl":   w.consumers.systemctl,
		"rabbitmqctl": func(args []string) string { return w.node.Ctl(args...) + "\n" },
	}}.types(pageBlocks(w.t, movePage, "TestPageScalesConsumers")[0])
	w.messagesGoOn(100)
}
