package app

import (
	"net/http"
	"strings"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/config"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// openAudit starts the audit trail. Until Redis is open its records wait.
func (a *App) openAudit() {
	a.audit = audit.New(audit.Config{
		Logger: a.logger, Instance: a.process.instance, Metrics: a.metrics, Keep: auditRecords,
	})
	a.closeWith(closer{name: "audit", close: a.audit.Close})
	if a.callers.tokens != nil {
		a.callers.tokens.OnReload(a.recordTokens)
	}
}

// recordTokens records which tokens of the token file were added and removed. Who changed the file, the coordinator
// cannot know.
func (a *App) recordTokens(added, removed []string) {
	record := audit.Record{
		Via: audit.File, Action: audit.Tokens, Result: audit.Done, Count: int64(len(added) + len(removed)),
	}
	for _, name := range added {
		record.Names = append(record.Names, "added "+name)
	}
	for _, name := range removed {
		record.Names = append(record.Names, "removed "+name)
	}
	a.audit.Record(a.life, record)
}

// connectAudit lets the audit trail keep its records. The trail closes before Redis, and after all that may record.
func (a *App) connectAudit(store *redisstore.Store) {
	a.audit.Connect(store)
	a.closeWith(closer{name: "audit", close: a.audit.Close})
}

// recordSession returns what records that a session of the console began or ended.
func (a *App) recordSession(action audit.Action) func(r *http.Request, who access.Identity) {
	return func(r *http.Request, who access.Identity) {
		a.audit.Record(access.With(r.Context(), who), audit.Record{
			From: r.RemoteAddr, Via: audit.Console, Action: action, Result: audit.Done,
		})
	}
}

// recordConsoleRefusal records a refused request of the console. Every refusal there comes here. A stranger chooses the
// path, so the path is no part of the record.
func (a *App) recordConsoleRefusal(r *http.Request, why string) {
	record := audit.Record{
		From: r.RemoteAddr, Via: audit.Console, Action: "a page of the console", Result: audit.Refused,
		Refusal: audit.ByIdentity, Cause: why,
	}
	if strings.HasPrefix(r.URL.Path, "/login") {
		record.Action = audit.Login
	}
	if kind := access.From(r.Context()).Kind; kind != "" && kind != access.Anonymous {
		record.Refusal = audit.ByRole
	}
	a.audit.Record(r.Context(), record)
}

// recordReload records that the configuration was read again: the changed keys, without their values, or why the
// reading was refused.
func (a *App) recordReload(why string, changes []config.Change, err error) {
	record := audit.Record{
		Via: audit.ConfigReload, Action: audit.Reload, Reason: why, Result: audit.Done, Count: int64(len(changes)),
	}
	if err != nil {
		record.Result, record.Cause = audit.Failed, err.Error()
	}
	for _, c := range changes {
		record.Names = append(record.Names, c.Key)
	}
	a.audit.Record(a.life, record)
}
