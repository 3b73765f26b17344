package callback

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// FuzzConfirmations reads the bytes of an answer to Confirm and demands that no verdict comes out that the producer
// did not give, and give without contradicting itself.
func FuzzConfirmations(f *testing.F) {
	for _, text := range []string{
		``,
		`confirmations {id: "1" verdict: VERDICT_COMMITTED} confirmations {id: "2" verdict: VERDICT_ROLLED_BACK}`,
		`confirmations {id: "1" verdict: VERDICT_COMMITTED} confirmations {id: "1" verdict: VERDICT_ROLLED_BACK}
		 confirmations {id: "1" verdict: VERDICT_COMMITTED}`,
		`confirmations {id: "1"} confirmations {id: "1" verdict: VERDICT_COMMITTED}`,
		`confirmations {id: "1" verdict: VERDICT_COMMITTED} confirmations {id: "1" verdict: VERDICT_COMMITTED}`,
		`confirmations {id: "2" verdict: 258} confirmations {id: "3" verdict: -2} confirmations {verdict: 2}`,
		`confirmations {id: "4" verdict: VERDICT_COMMITTED} confirmations {id: "1 " verdict: VERDICT_ROLLED_BACK}`,
	} {
		var answer msghandlerv1.ConfirmResponse
		must.Succeed(f, prototext.Unmarshal([]byte(text), &answer))
		data, err := proto.Marshal(&answer)
		must.Succeed(f, err)
		f.Add(data)
	}
	asked := []string{"1", "2", "3"}
	f.Fuzz(func(t *testing.T, data []byte) {
		var answer msghandlerv1.ConfirmResponse
		if proto.Unmarshal(data, &answer) != nil {
			return // gRPC makes an error of it, and an error is no verdict.
		}
		verdicts := map[string]halfmsg.Verdict{}
		judgeConfirmations(verdicts, asked, answer.GetConfirmations())
		if len(verdicts) != len(asked) {
			t.Errorf("%d verdicts for %d ids: %v", len(verdicts), len(asked), verdicts)
		}
		for _, id := range asked {
			if want := unanimous(id, &answer); verdicts[id] != want {
				t.Errorf("%s is %d, want %d of %s", id, verdicts[id], want, prototext.Format(&answer))
			}
		}
	})
}

// unanimous is the only verdict in an answer for an id, and UNKNOWN without a verdict or with several.
func unanimous(id string, answer *msghandlerv1.ConfirmResponse) halfmsg.Verdict {
	said := map[msghandlerv1.Verdict]bool{}
	for _, c := range answer.GetConfirmations() {
		if c.GetId() == id {
			said[c.GetVerdict()] = true
		}
	}
	switch {
	case len(said) == 1 && said[msghandlerv1.Verdict_VERDICT_COMMITTED]:
		return halfmsg.VerdictCommitted
	case len(said) == 1 && said[msghandlerv1.Verdict_VERDICT_ROLLED_BACK]:
		return halfmsg.VerdictRolledBack
	}
	return halfmsg.VerdictUnknown
}

// FuzzCallError: for every code and text that a producer fails with, the error is short, printable, and not taken for
// an error of the coordinator.
func FuzzCallError(f *testing.F) {
	f.Add(uint32(codes.NotFound), "no such \x00 thing\n")
	f.Add(uint32(codes.Unimplemented), "\xff\xfe")
	f.Add(uint32(codes.DeadlineExceeded), "")
	f.Add(uint32(1<<31), "a code that there is not")
	f.Fuzz(func(t *testing.T, code uint32, said string) {
		cause := status.Error(codes.Code(code), said)
		if cause == nil {
			return // OK is no error.
		}
		err := &CallError{Method: "Confirm", Producer: "orders", Target: "dns:///orders:9000", err: cause}
		text := err.Error()
		if !utf8.ValidString(text) || len(text) > 1000 {
			t.Errorf("%d bytes: %q", len(text), text)
		}
		for _, r := range text {
			if r < ' ' || r == 0x7f {
				t.Errorf("a control character in %q", text)
			}
		}
		if err.Code() != codes.Code(code) {
			t.Errorf("the code is %v", err.Code())
		}
	})
}

// FuzzTarget: an accepted callback target has a canonical form, which is parsed as the same target again. The form is
// dialled, so it must hold a host and a port only.
func FuzzTarget(f *testing.F) {
	for _, text := range []string{
		"orders:9000", "dns:///Orders.SVC.:9000", "[2001:DB8::1]:9000", "[::ffff:127.0.0.1]:80", "unix:///tmp/x",
		"dns:///dns:///orders:1", "[fe80::1%eth0]:9000", "127.1:80", "0x7f.1:80", "a:1,b:2", "dns:///[::]:1",
	} {
		f.Add(text)
	}
	inner, err := newRules([]string{"*:*"}, nil)
	must.Succeed(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		read, err := parseTarget(text)
		if err != nil {
			if !errors.Is(err, halfmsg.ErrBadTarget) || !utf8.ValidString(err.Error()) {
				t.Errorf("%q: %q", text, err)
			}
			return
		}
		again, err := parseTarget(read.String())
		if err != nil || again != read {
			t.Errorf("%q is %s, which is %+v, %v", text, read, again, err)
		}
		if a := read.literal; a.IsValid() && (a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast()) &&
			inner.check(read) == nil {
			t.Errorf("%q leads to %s without having been named", text, a)
		}
	})
}

// FuzzAllow: every glob is refused or matches in the end.
func FuzzAllow(f *testing.F) {
	for _, seed := range [][2]string{
		{"*.orders.svc:9000", "a.orders.svc:9000"},
		{"127.0.0.1:*", "127.0.0.1:1"},
		{"[::1]:*", "[::1]:9"},
		{"[]:9", "a:9"},
		{"[:9", "a:9"},
		{"***:*", "a:9"},
		{":1", "a:1"},
		{".:1", "a.:1"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, glob, text string) {
		allowed, err := newRules([]string{glob}, nil)
		if err != nil {
			return
		}
		read, err := parseTarget(text)
		if err != nil {
			return
		}
		if err := allowed.check(read); err != nil && !errors.Is(err, halfmsg.ErrForbidden) {
			t.Errorf("%s against %q: %v", read, glob, err)
		}
	})
}

// Who notices first that time is over, the producer or this side, is chance; the cause of a message's troubles is the
// same.
func TestTimeoutsHaveOneText(t *testing.T) {
	t.Parallel()
	words := map[string]bool{}
	for _, said := range []string{"context deadline exceeded", "stream terminated by RST_STREAM with error code: CANCEL"} {
		words[(&CallError{err: status.Error(codes.DeadlineExceeded, said), Timeout: time.Second}).Error()] = true
	}
	if len(words) != 1 {
		t.Errorf("the readers got %q", slices.Collect(maps.Keys(words)))
	}
	const onTheWay = "context deadline exceeded while waiting for connections to become ready"
	err := &CallError{err: status.Error(codes.DeadlineExceeded, onTheWay), Timeout: time.Second}
	if !strings.Contains(err.Error(), onTheWay) {
		t.Errorf("where the time went is not told: %v", err)
	}
}
