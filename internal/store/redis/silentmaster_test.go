package redis

import (
	"errors"
	"io"
	"testing"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestSilentMasterIsTheCause(t *testing.T) {
	t.Parallel()
	b := &breakers{silent: map[string]SilentMaster{"10.0.0.1:6379": {Cause: io.EOF}}}
	b.open.Store(true)
	err := b.errorOf("10.0.0.1:6379")
	if got := cause.Of(cause.Part{}, err); got != cause.RedisMasterAway || !errors.Is(err, halfmsg.ErrUnavailable) {
		t.Errorf("%v has the cause %+v", err, got)
	}
}
