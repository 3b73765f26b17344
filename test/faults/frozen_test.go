package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

// A master of Redis that stands still is replaced, and stays a master until the Sentinel demotes the old master.
var frozenRows = []row{
	{
		name: "F15_frozen", copies: true, leavesMarkers: true, lasting: true, fault: freezeMaster, heal: sendAgain,
		world: options{once: true, replica: true},
	},
}

// freezeMaster stops the master until all clients have switched to the new master, and resumes the old master.
func freezeMaster(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.freeze()
	w.forgot.until()
	w.allReady() // no coordinator waits for the old one any more
	w.delivers("while the old master stands still", 100)
	w.thaw()
	w.demoted()
	w.delivers("after the old master has become a replica", 100)
	w.allReady()
}

// freeze stops the master, and returns when the Sentinel has put the replica in charge.
func (w *world) freeze() {
	w.t.Helper()
	w.forgot.from = time.Now()
	w.redis.Freeze()
	w.ledger.Fault("SIGSTOP to the master")
	w.promoted()
	if state := statusOf(w.t, w.replica.Pid(), "State"); !strings.HasPrefix(state, "T") {
		w.t.Errorf("the old master is in state %s, and must stand still", state)
	}
}

// thaw lets the old master go on.
func (w *world) thaw() {
	w.t.Helper()
	w.replica.Thaw()
	w.ledger.Fault("SIGCONT to the old master")
	if !w.replica.IsMaster() {
		w.t.Error("the old master does not go on as a master, and must know of nothing")
	}
}

// demoted waits until the old master follows the new one, and demands that the old master had taken writes that the
// new master never saw.
func (w *world) demoted() {
	w.t.Helper()
	reached := 0
	servers.Eventually(w.t, patience, "the Sentinel makes the old master a replica", func() bool {
		info := w.replica.Replication()
		if strings.Contains(info, "role:master") {
			reached = w.offset(info, "master_repl_offset:")
		}
		return strings.Contains(info, "master_link_status:up")
	})
	forked := w.offset(w.redis.CLI("INFO", "replication"), "second_repl_offset:")
	w.ledger.Fault(fmt.Sprintf("the old master is a replica, and has thrown away %d bytes of writes", reached-forked))
	if w.t.Logf("the old master took %d bytes, which the new master never saw", reached-forked); reached <= forked {
		w.t.Error("nothing was written to the old master: the frozen master was replaced unnoticed")
	}
}

// offset reads a number from the reply to INFO.
func (w *world) offset(info, name string) int {
	w.t.Helper()
	_, rest, _ := strings.Cut(info, name)
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(strings.TrimSpace(line))
	w.must(err)
	return n
}

// delivers waits until consumers have got so many further copies.
func (w *world) delivers(when string, copies int) {
	w.t.Helper()
	_, _, before := w.ledger.Totals()
	servers.Eventually(w.t, patience, "messages are delivered "+when, func() bool {
		_, _, now := w.ledger.Totals()
		return now >= before+copies
	})
	w.ledger.Fault("messages are delivered " + when)
}
