package server_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// A word without a value would reach operators as UNSPECIFIED.
func TestEveryWordHasItsValue(t *testing.T) {
	t.Parallel()
	events := []string{
		halfmsg.EventSend.String(), halfmsg.EventCommitted.String(), halfmsg.TakenOver,
		halfmsg.Done.String(), halfmsg.RolledBack.String(),
	}
	for _, e := range halfmsg.Events() {
		if e.OnTimeline() {
			events = append(events, e.String())
		}
	}
	for _, of := range []struct {
		prefix string
		values map[string]int32
		words  []string
	}{
		{"EVENT_KIND_", adminv1.EventKind_value, events},
		{"IDENTITY_KIND_", adminv1.IdentityKind_value, []string{
			string(access.Anonymous), string(access.Certificate), string(access.Token), string(access.JWT),
			string(access.Proxy),
		}},
		{"AUDIT_CHANNEL_", adminv1.AuditChannel_value, []string{
			string(audit.GRPC), string(audit.HTTP), string(audit.Console), string(audit.CLI), string(audit.ConfigReload),
			string(audit.File),
		}},
		{"AUDIT_ACTION_", adminv1.AuditAction_value, []string{
			string(audit.Retry), string(audit.Discard), string(audit.Replay), string(audit.ReplayDeadLetters),
			string(audit.DiscardDeadLetters), string(audit.Login), string(audit.Logout), string(audit.Reload),
			string(audit.Tokens), string(audit.AskProducer),
		}},
		{"AUDIT_RESULT_", adminv1.AuditResult_value, []string{
			string(audit.Begun), string(audit.Done), string(audit.Refused), string(audit.Failed),
		}},
		{"REFUSAL_KIND_", adminv1.RefusalKind_value, []string{
			string(audit.ByIdentity), string(audit.ByRole), string(audit.ByProducer), string(audit.ByPolicy),
		}},
	} {
		for _, word := range of.words {
			if of.values[of.prefix+strings.ToUpper(word)] == 0 {
				t.Errorf("%s has no value for %s", of.prefix, word)
			}
		}
		if len(of.values) > len(of.words)+1 && of.prefix != "EVENT_KIND_" {
			t.Errorf("%s has %d values for %d words", of.prefix, len(of.values), len(of.words))
		}
	}
}
