package callback_test

import (
	"errors"
	"testing"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// A target that can never be connected to is refused when its message arrives, and not accepted and never asked.
func TestLocalhostOutsideTheNetworksIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		networks []string
		target   string
		refused  bool
	}{
		"default":         {nil, "localhost:9000", true},
		"below localhost": {nil, "dns:///Orders.LocalHost.:9000", true},
		"other networks":  {[]string{"10.0.0.0/8"}, "localhost:9000", true},
		"IPv4 loopback":   {[]string{"127.0.0.0/8"}, "localhost:9000", false},
		"IPv6 loopback":   {[]string{"::1/128"}, "localhost:9000", false},
		"another name":    {nil, "localhost.svc:9000", false},
	} {
		client := client(t, callback.Config{Allow: []string{"*:*"}, Networks: c.networks})
		_, err := client.Resolve("orders", c.target)
		if refused := errors.Is(err, halfmsg.ErrForbidden); refused != c.refused || err != nil && !refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
