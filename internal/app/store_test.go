package app

import (
	"slices"
	"testing"

	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

func TestAllowedFindingsRaiseNoAlert(t *testing.T) {
	t.Parallel()
	findings := []redisstore.Finding{{Severity: redisstore.Refuse, What: "it evicts"}, {What: "no replica"}}
	for _, allowed := range []bool{false, true} {
		a := newIdle(t)
		a.settings.Redis.AllowUnsafe = allowed
		a.noteUnsafe(findings)
		a.noteSettings(findings)
		ready := a.checks.named(checkSettings).Run(t.Context()) == nil
		if a.redis.unsafe == allowed || ready != allowed || len(a.refused(findings)) == 1 == allowed {
			t.Errorf("allowed %t: told %t, ready %t, refused %v", allowed, a.redis.unsafe, ready, a.refused(findings))
		}
		if slices.Contains(a.refused(findings), findings[1]) {
			t.Error("a warning is refused")
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
