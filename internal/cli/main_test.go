package cli_test

import (
	"os"
	"testing"

	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

func TestMain(m *testing.M) {
	if natsserver.Child() {
		return
	}
	os.Exit(programs.Main(m, "msghandler"))
}
