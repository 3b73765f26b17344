package rabbitmq_test

import (
	"testing"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/servers"
)

// RabbitMQ reserves names that begin with amq. in small letters, and no others: so such exchanges may exist, and are
// published to.
func TestOnlySmallLettersAreReserved(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	p := publisher(t, rabbitmq.Config{URL: url})
	for _, exchange := range []string{"AMQ.direct", "Amq.orders"} {
		d.exchange(exchange)
		d.queue("q-"+exchange, exchange, "k", nil)
		expect(t, publishAll(t.Context(), p, []publish.Message{message(1, exchange, "k")}), publish.Acked)
		if got := d.take("q-"+exchange, 1)[0]; got.Exchange != exchange {
			t.Errorf("%s: got %+v", exchange, got)
		}
	}
}
