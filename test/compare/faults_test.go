package compare

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/compare/load"
	"github.com/msghandler/msghandler/test/compare/systems"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/prometheus/procfs"
)

const (
	// beforeTheKill is how many messages arrive before the publisher is killed.
	beforeTheKill = 3000
	// outage is how long the broker is away, without the time of its start, and outageRate the orders a second.
	outage, outageRate = 10 * time.Second, 200
	// unmarked is how long messages are published while none can be marked as sent.
	unmarked = 500 * time.Millisecond
	// recovery is how long a system may take to deliver everything; a minute more than the longest lock.
	recovery = 3 * time.Minute
	// noRoute is a routing key without a queue, and noticed how long a system may take to notice it.
	noRoute, noticed = "nowhere", 10 * time.Second
)

// BenchmarkFaults shows what each system does when its publisher is killed, when the broker is away, and when the
// broker has no queue for a message.
func BenchmarkFaults(b *testing.B) {
	for b.Loop() {
		w := newWorld(b)
		killed := [][]string{{
			"kill -9 of the publisher", "lost", "copies", "of which flagged", "all delivered after", "at rest after",
		}}
		away := [][]string{{
			"the broker is away", "orders committed meanwhile", "failed", "messages wait in", "all delivered after",
		}}
		unroutable := [][]string{{"no queue for the message", "what the system says after 10 s"}}
		for _, kind := range w.chosen() {
			killed = append(killed, w.killPublisher(kind))
			b.Log(killed[len(killed)-1])
			away = append(away, w.loseBroker(kind))
			b.Log(away[len(away)-1])
			unroutable = append(unroutable, w.publishNowhere(kind))
			b.Log(unroutable[len(unroutable)-1])
			w.tidy()
		}
		fmt.Printf("\n%s\n%s\n%s\n", markdown(killed), markdown(away), markdown(unroutable))
	}
}

// endless is the duration of a load that is stopped.
const endless = time.Hour

// killPublisher kills the process that publishes, in full load, and starts it again. The store in which messages are
// marked as sent is frozen before, so that the process has published messages and not marked them.
func (w *world) killPublisher(kind systems.Kind) []string {
	stop := w.startCoordinator(kind)
	config := w.load(kind)
	config.Callers, config.Duration, config.Settle = *callers, endless, recovery
	s := w.startService(config)
	arrived, further, marked := w.consumer.counts()
	servers.Eventually(w.t, time.Minute, "messages arrive", func() bool {
		now, _, _ := w.consumer.counts()
		return now >= arrived+beforeTheKill
	})
	thaw := w.freezeStore(kind)
	<-time.After(unmarked)
	if kind.Coordinator {
		w.killCoordinator()
		thaw()
		stop = w.startCoordinator(kind)
	} else {
		s.kill()
		thaw()
		resting := w.load(kind)
		resting.Duration = endless
		s = w.startService(resting)
	}
	began := time.Now()
	if kind.Coordinator {
		w.consumer.send(load.Stop)
	}
	missing := w.awaitAll(config.First)
	delivered := time.Since(began)
	// A message that was published before the kill may be published again long after.
	servers.Eventually(w.t, recovery, "nothing waits", func() bool { return w.waiting(kind) == 0 })
	rest := time.Since(began)
	if s.stop(); kind.Coordinator {
		stop()
	}
	_, furtherNow, markedNow := w.consumer.counts()
	return []string{
		kind.Title, fmt.Sprint(missing), fmt.Sprint(furtherNow - further), fmt.Sprint(markedNow - marked),
		asText(delivered), asText(rest),
	}
}

// freezeStore stops the processes of the store in which sent messages are marked.
func (w *world) freezeStore(kind systems.Kind) (thaw func()) {
	w.t.Helper()
	if kind.InRedis() {
		w.redis.Freeze()
		return w.redis.Thaw
	}
	pids := w.family(w.database.Server.Pid())
	signal := func(signal syscall.Signal) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, signal) // a connection may have ended
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}

// family is a process and its children.
func (w *world) family(pid int) []int {
	w.t.Helper()
	processes, err := procfs.AllProcs()
	w.must(err)
	pids := []int{pid}
	for _, process := range processes {
		if stat, err := process.Stat(); err == nil && stat.PPID == pid {
			pids = append(pids, process.PID)
		}
	}
	return pids
}

// awaitAll waits until all committed orders of a load have arrived, and returns how many have not.
func (w *world) awaitAll(first uint64) (missing int) {
	w.t.Helper()
	for deadline := time.Now().Add(recovery); ; {
		missing = w.consumer.missing(w.committed(first))
		if missing == 0 || time.Now().After(deadline) {
			return missing
		}
		<-time.After(100 * time.Millisecond)
	}
}

// committed are the numbers of a load's committed orders.
func (w *world) committed(first uint64) (numbers []uint64) {
	w.t.Helper()
	rows, err := w.db.QueryContext(w.t.Context(), `SELECT number FROM orders WHERE number >= $1 AND number < $2`,
		int64(first), int64(first+numbersOfALoad))
	w.must(err)
	defer rows.Close()
	for rows.Next() {
		var number uint64
		w.must(rows.Scan(&number))
		numbers = append(numbers, number)
	}
	w.must(rows.Err())
	return numbers
}

// loseBroker kills the broker under a small load, and starts it again after a while.
func (w *world) loseBroker(kind systems.Kind) []string {
	stop := w.startCoordinator(kind)
	defer stop()
	config := w.load(kind)
	config.Rate, config.Duration, config.Settle = outageRate, endless, recovery
	s := w.startService(config)
	servers.Eventually(w.t, time.Minute, "messages arrive", func() bool {
		numbers := w.committed(config.First)
		return len(numbers) > outageRate && w.consumer.missing(numbers) < len(numbers)
	})
	w.rabbit.Kill()
	before, began := len(w.committed(config.First)), time.Now()
	<-time.After(outage)
	waiting := w.waiting(kind)
	w.rabbit.Start()
	away := time.Since(began)
	numbers, back := w.committed(config.First), time.Now()
	servers.Eventually(w.t, recovery, "committed messages are delivered", func() bool {
		return w.consumer.missing(numbers) == 0
	})
	took := time.Since(back)
	report := s.stop()
	due := int(away.Seconds() * outageRate)
	return []string{
		kind.Title, fmt.Sprintf("%d of %d in %s", len(numbers)-before, due, asText(away)), fmt.Sprint(report.Failed),
		fmt.Sprintf("%s: %d", kind.Store(), waiting), asText(took),
	}
}

func asText(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// waiting is how many messages wait to be published.
func (w *world) waiting(kind systems.Kind) (messages int) {
	w.t.Helper()
	if !kind.InRedis() {
		return int(w.number(kind.Waiting))
	}
	stats, err := w.admin.GetStats(w.t.Context(), &adminv1.GetStatsRequest{})
	w.must(err)
	for _, state := range stats.GetStates() {
		if s := state.GetState(); s == pb.State_STATE_PENDING || s == pb.State_STATE_SENDABLE {
			messages += int(state.GetCount())
		}
	}
	return messages
}

// publishNowhere commits an order whose message has no queue.
func (w *world) publishNowhere(kind systems.Kind) []string {
	stop := w.startCoordinator(kind)
	defer stop()
	config := w.load(kind)
	config.RoutingKey, config.Callers, config.Orders, config.Settle = noRoute, 1, 1, noticed
	w.startService(config).result()
	return []string{kind.Title, w.fate(kind, fmt.Sprint(config.First))}
}

// fate is what the system says about a message.
func (w *world) fate(kind systems.Kind, id string) (text string) {
	w.t.Helper()
	if kind.InRedis() {
		m, err := w.admin.GetMessage(w.t.Context(), &adminv1.GetMessageRequest{Producer: systems.Producer, Id: id})
		w.must(err)
		return fmt.Sprintf("%s, attempts %d, %s", m.GetRecord().GetState(), m.GetRecord().GetPublishAttempts(),
			m.GetRecord().GetLastError())
	}
	w.must(w.db.QueryRowContext(w.t.Context(), kind.Fate, id).Scan(&text))
	return text
}
