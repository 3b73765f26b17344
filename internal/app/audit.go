package app

import (
	"github.com/msghandler/msghandler/internal/audit"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// openAudit starts the audit trail. Until Redis is open its records wait.
func (a *App) openAudit() {
	a.audit = audit.New(audit.Config{
		Logger: a.logger, Instance: a.instance, Metrics: a.metrics, Keep: a.settings.Access.AuditRecords,
	})
	a.closeWith(closer{name: "audit", close: a.audit.Close})
}

// connectAudit lets the audit trail keep its records. The trail closes before Redis, and after all that may record.
func (a *App) connectAudit(store *redisstore.Store) {
	a.audit.Connect(store)
	a.closeWith(closer{name: "audit", close: a.audit.Close})
}
