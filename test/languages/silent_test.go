package languages

import (
	"testing"

	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// A router that has forgotten a connection drops its bytes and tells nobody. Without a time limit each question would
// take a connection of the pool for ever. The services in Java have the limit in the URL of their database.
func TestSilentDatabaseIsGivenUp(t *testing.T) {
	t.Parallel()
	database := postgreSQL.open(t)
	migrate(t, postgreSQL, database)
	s := &shop{
		T: t, language: language{name: "node-orders"}, listen: servers.Addresses(t, 1)[0], run: node(t),
		way: wire.SQL(t, hostOf.FindString(database.DSN)),
	}
	s.environment = []string{
		"DATABASE_URL=" + postgreSQL.url(database.DSN, s.way.Addr), "LISTEN=" + s.listen,
		"COORDINATOR_TOKENS=" + writeFile(t, t.TempDir(), "tokens", token+"\n"),
	}
	s.start()
	s.asked(false, "unheard", "UNKNOWN")
	s.way.Silence()
	s.asked(false, "unheard", "UNAVAILABLE")
}
