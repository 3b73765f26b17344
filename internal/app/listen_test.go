package app_test

import (
	"net"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/test/must"
)

func TestListenErrorsNameTheRemedy(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer taken.Close()
	for addr, want := range map[string]string{
		taken.Addr().String(): "stop what listens there",
		"192.0.2.1:9090":      "set an address that this machine has", // reserved by RFC 5737
	} {
		s := settings()
		s.HTTP.Addr, s.Access.Anonymous = addr, true
		_, err := app.New(t.Context(), s, app.Deps{})
		if err == nil || !strings.Contains(err.Error(), "http.addr: cannot listen on "+addr) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want the remedy %q", addr, err, want)
		}
	}
}
