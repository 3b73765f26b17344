package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/app/brokers"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/ground/versions"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

const areaRedis = "redis"

// areaBroker is the area of the default broker.
var areaBroker = cause.BrokerSubject("")

func examineRedis(ctx context.Context, e Examination) []Finding {
	r := report{area: areaRedis}
	seen, err := redisstore.Examine(ctx, redisstore.Config{
		URL: e.Settings.Redis.URL, Prefix: e.Settings.Redis.Prefix, Shards: e.Settings.Redis.Shards,
		MinReplicas: e.Settings.Redis.MinReplicas, Handshake: e.handshakes(cause.Redis.Key),
	})
	if err != nil {
		r.because(cause.Of(cause.Redis, err), "at "+redisHosts(e.Settings.Redis.URL)+": "+err.Error())
		return r.all
	}
	for _, s := range seen {
		tell := r.warn
		switch s.Severity {
		case redisstore.Refuse:
			tell = r.trouble
		case redisstore.Note:
			tell = r.note
		default:
		}
		tell(s.Name, s.What, s.Why, s.Remedy)
	}
	return r.orOK("reachable, and the settings that it reveals keep the promises")
}

// redisHosts says where Redis is, without users and passwords.
func redisHosts(url string) string {
	where, _ := address.ParseRedis(url) // checked by config
	return strings.Join(where.Hosts, ",")
}

func examineBroker(ctx context.Context, e Examination) []Finding {
	r := report{area: areaBroker, handshakes: e.handshakes("amqp.url")}
	deadLetters := e.Settings.Send.DeadLetterExchange
	part := cause.Part{System: areaBroker, Key: "amqp.url"}
	return r.rabbitMQ(ctx, part, strings.Join(e.Settings.AMQP.URLs, ","), deadLetters, "send.dead_letter_exchange")
}

// examineBrokers examines the brokers beside the default one, one after the other.
func examineBrokers(ctx context.Context, e Examination) (all []Finding) {
	for _, name := range e.Settings.BrokerNames() {
		b := e.Settings.Brokers[name]
		r := report{area: cause.BrokerSubject(name), handshakes: e.handshakes("brokers." + name + ".url")}
		part := cause.Part{System: brokers.System(b.URL), Name: name, Key: "brokers." + name + ".url"}
		if part.System == areaBroker {
			all = append(all, r.rabbitMQ(ctx, part, b.URL, b.DeadLetterExchange, "brokers."+name+".dead_letter_exchange")...)
			continue
		}
		all = append(all, r.anyBroker(ctx, part, b.URL)...)
	}
	return all
}

// anyBroker opens a publisher and waits until the broker takes messages.
func (r *report) anyBroker(ctx context.Context, part cause.Part, url string) []Finding {
	publisher, err := brokers.Open(publish.Config{
		URL: url, ConfirmTimeout: reachTime, Handshake: r.handshakes, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.trouble("broker-url", part.Key+": "+err.Error(), "the coordinator does not start", "correct "+part.Key)
		return r.all
	}
	defer func() { _ = publisher.Close(ctx) }() // nothing was published
	reach, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	if err := publisher.Await(reach); err != nil {
		r.because(cause.Of(part, err), "takes no messages: "+err.Error())
	}
	return r.orOK(part.System + " takes messages")
}

// reachTime is how long a broker may take to be reached.
const reachTime = 5 * time.Second

// rabbitMQ examines a RabbitMQ and its dead-letter exchange, if it has one, with the key of that.
func (r *report) rabbitMQ(ctx context.Context, part cause.Part, url, deadLetters, deadKey string) []Finding {
	var exchanges []string
	if deadLetters != "" {
		exchanges = append(exchanges, deadLetters)
	}
	config := rabbitmq.Config{URL: url, Handshake: r.handshakes, Logger: slog.New(slog.DiscardHandler)}
	health, err := rabbitmq.Examine(ctx, config, exchanges...)
	if err != nil {
		r.because(cause.Of(part, err), err.Error())
		return r.all
	}
	r.broker(health)
	r.brokerVersion(health)
	for _, name := range slices.Sorted(maps.Keys(health.Exchanges)) {
		r.warn("dead-letter-exchange", fmt.Sprintf("%s %s: %v", deadKey, name, health.Exchanges[name]),
			"dead messages are kept and shown, but not copied", "declare the exchange, or give the user permission to it")
	}
	return r.orOK(health.Server + " at " + health.Host + " takes messages")
}

// broker reports why a reachable broker accepts no messages.
func (r *report) broker(health rabbitmq.Health) {
	what := fmt.Sprintf("%s at %s: %v", health.Server, health.Host, health.Trouble)
	switch {
	case health.Trouble == nil:
	case errors.Is(health.Trouble, rabbitmq.ErrNotPermitted):
		of := cause.RabbitMQPermission
		r.warn(of.Name, what, of.Why, of.Remedy)
	case errors.Is(health.Trouble, publish.ErrBlocked):
		r.because(cause.RabbitMQAlarm, what)
	default:
		r.because(cause.RabbitMQRefuses, what)
	}
}

// brokerVersion reports an unsupported version.
func (r *report) brokerVersion(health rabbitmq.Health) {
	what := health.Server + " at " + health.Host
	switch health.Age {
	case rabbitmq.TooOld:
		r.warn("rabbitmq-old", fmt.Sprintf("%s is older than %v", what, versions.RabbitMQ.Oldest),
			"msghandler is not tested with it", fmt.Sprintf("upgrade to RabbitMQ %v or later", versions.RabbitMQ.Oldest))
	case rabbitmq.Untested:
		r.note("rabbitmq-new", fmt.Sprintf("%s is newer than %v", what, versions.RabbitMQ.Newest),
			"msghandler is not tested with it", "try it with queues of the same kind before producers depend on it")
	default:
	}
}
