package random

import (
	"flag"
	"os"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// few says that the number of sequences was chosen by a flag; the sequences may be too few to reach everything.
var few bool

// TestMain plays more sequences than rapid does by itself, unless -rapid.checks gives the number. A failing sequence
// is made smaller and kept in testdata/rapid, and is played first from then on.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { few = few || f.Name == "rapid.checks" })
	if !few {
		_ = flag.Set("rapid.checks", sequencesEach)
	}
	few = few || !judgesReach
	assert.Watch(&assert.Watcher{
		Broken:  func(rule, about string) { brokenAssertions.Store(rule, about) },
		Reached: func(string) {},
	})
	os.Exit(m.Run())
}

// brokenAssertions are the assertions of the shipped code that did not hold, and the message of the latest time.
var brokenAssertions sync.Map

// usual are the owners' events that any number of sequences brings about; the others are seen less often than always.
var usual = map[halfmsg.Event]bool{
	halfmsg.EventSubmitTrusted: true, halfmsg.EventCommitted: true, halfmsg.EventRolledBack: true,
	halfmsg.EventUnknown:     true,
	halfmsg.EventUnreachable: true, halfmsg.EventGivenUp: true, halfmsg.EventAcked: true, halfmsg.EventRefused: true,
	halfmsg.EventUnsure: true, halfmsg.EventAckedMarked: true, halfmsg.EventMarkerDeleted: true,
	halfmsg.EventMarkerKept: true,
}

func TestRandomSequencesLoseNothing(t *testing.T) {
	for name, afterAck := range map[string]bool{"before_publish": false, "after_ack": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab := newLab(t, defect{})
			rapid.Check(t, func(rt *rapid.T) {
				if wrong := lab.run(t, sequences().Draw(rt, "steps"), afterAck); wrong != "" {
					rt.Fatal(wrong)
				}
			})
			t.Logf("moves made: %v", lab.made)
			for _, move := range halfmsg.Moves() {
				if !few && usual[move.Event] && !other(move, afterAck) && lab.made[move] == 0 && !t.Failed() {
					t.Errorf("the sequences reach too little: none has made the move %v", move)
				}
			}
		})
	}
}

// The store tells two messages of one name apart by their creation time in milliseconds. So messages of two sequences
// must not have the same time.
func TestSequencesAreIndependent(t *testing.T) {
	lab := newLab(t, defect{})
	for i, steps := range [][]step{
		{{Do: "wait a little"}, {Do: "send", A: 1, B: 1, C: 12}},
		{
			{Do: "send", A: 1, B: 2},
			{Do: "submit", A: 1, B: 2},
			{Do: "wait a little"},
			{Do: "send", B: 1},
			{Do: "roll back", B: 1},
			{Do: "submit", A: 1, B: 1},
			{Do: "all go on", C: 34},
			{Do: "all go on", C: 58},
			{Do: "send", A: 1, B: 1},
		},
	} {
		if wrong := lab.run(t, steps, false); wrong != "" {
			t.Errorf("sequence %d: %s", i, wrong)
		}
	}
}

// other says that a move belongs to the other value of delete_business.when.
func other(move halfmsg.Move, afterAck bool) bool {
	return afterAck && move.Event == halfmsg.EventAcked ||
		!afterAck && (move.From == halfmsg.Acknowledged || move.To == halfmsg.Acknowledged)
}
