package rabbitmq_test

import (
	"testing"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/publish/rabbitmq"
	"github.com/msghandler/msghandler/test/servers"
)

// RabbitMQ reserves names that begin with amq. in small letters, and no others: so such exchanges may exist, and are
// published to.
func TestOnlySmallLettersAreReserved(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	p := publisher(t, rabbitmq.Config{URLs: []string{url}})
	for _, exchange := range []string{"AMQ.direct", "Amq.orders"} {
		d.exchange(exchange)
		d.queue("q-"+exchange, exchange, "k", nil)
		expect(t, publish(t.Context(), p, []halfmsg.Publishing{message(1, exchange, "k")}), halfmsg.Acked)
		if got := d.take("q-"+exchange, 1)[0]; got.Exchange != exchange {
			t.Errorf("%s: got %+v", exchange, got)
		}
	}
}
