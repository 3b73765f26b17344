package drill

import (
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
)

// incident is something that goes wrong.
type incident struct {
	name string
	// before prepares the world for the incident. May be nil.
	before func(w *world)
	// breaks causes the incident.
	breaks func(w *world)
	// goesOn is called again and again until the incident is repaired. May be nil.
	goesOn func(w *world)
	// console is a text of the overview, finding a finding of the doctor, and alerts must fire.
	console, finding string
	alerts           []string
	// cause is the finding that an alert names; empty where the alert is about a single cause.
	cause string
	// runbook is the alert whose commands repair the incident, and block which of its blocks.
	runbook string
	block   int
	// words are the placeholders of the commands.
	words func(w *world) []string
	// soon and patience are the limits of the incident, where they differ.
	soon, patience time.Duration
}

// incidents in this order: the signals of the crash loop end while the others run.
var incidents = []incident{
	{
		name: "crash loop", breaks: (*world).crashAgainAndAgain, goesOn: (*world).order,
		console: "start again and again", finding: "coordinators-restarting", alerts: []string{"MsghandlerRestarting"},
		runbook: "MsghandlerRestarting", soon: loopSoon, patience: loopPatience,
	},
	{
		name: "producer gone", breaks: (*world).stopProducer,
		console: "orders cannot be reached", finding: "messages-unanswered", alerts: []string{"MsghandlerProducerAway"},
		cause: "producer-away", runbook: "MsghandlerProducerAway",
		words: func(*world) []string { return []string{"PRODUCER", "orders"} },
	},
	{
		name: "queue unbound", breaks: (*world).unbind, goesOn: (*world).order,
		console: "does not take messages", finding: "refused-no-route", alerts: []string{"MsghandlerRefused"},
		cause: "refused-no-route", runbook: "MsghandlerRefused",
		words: func(*world) []string { return []string{"NAME", exchange, "QUEUE", queue, "KEY", key} },
	},
	{
		name: "Redis full", breaks: (*world).fillRedis, goesOn: (*world).order,
		console: "of maxmemory", finding: "redis-full", cause: "redis-full",
		alerts:  []string{"MsghandlerRedisMemory", "MsghandlerRedisRefuses"},
		runbook: "MsghandlerRedisFull", words: func(w *world) []string { return []string{"URL", w.redis.URL()} },
	},
	{
		name: "memory alarm", breaks: (*world).alarm, goesOn: (*world).order,
		console: "rabbitmq: ", finding: "rabbitmq-alarm", alerts: []string{"MsghandlerBrokerAway"},
		cause: "rabbitmq-alarm", runbook: "MsghandlerBrokerAway",
	},
	{
		name: "producer moved", breaks: (*world).moveProducer,
		console: "stock cannot be reached", finding: "messages-unanswered", alerts: []string{"MsghandlerProducerAway"},
		cause: "producer-away", runbook: "MsghandlerProducerAway", block: 1,
		words: func(w *world) []string { return []string{"OLD", w.oldStock, "NEW", w.stock.addr} },
	},
	{
		name: "Redis slow", breaks: (*world).delayRedis, goesOn: (*world).order,
		console: "Redis is slow", finding: "redis-slow", alerts: []string{"MsghandlerRedisSlow"},
		runbook: "MsghandlerRedisSlow",
	},
	{
		name: "broker slow", breaks: (*world).delayBroker, goesOn: (*world).order,
		console: "broker (default) is slow", finding: "broker-slow", alerts: []string{"MsghandlerBrokerSlow"},
		runbook: "MsghandlerBrokerSlow",
	},
	{
		name: "starved coordinator", breaks: (*world).starve, goesOn: (*world).order,
		console: "runs late", finding: "coordinator-starved", alerts: []string{"MsghandlerStarved"},
		runbook: "MsghandlerStarved",
	},
	{
		name: "answers unknown", before: (*world).makePast, breaks: (*world).readReplica, goesOn: (*world).order,
		console: "producer orders does not know its messages", finding: "producer-unknown",
		alerts: []string{"MsghandlerProducerUncertain"}, runbook: "MsghandlerProducerUncertain",
		words: func(*world) []string { return []string{"PRODUCER", "orders"} },
	},
	{
		name: "answers fail", before: (*world).makePast, breaks: (*world).failConfirm, goesOn: (*world).order,
		console: "for a replica that fails", finding: "producer-errors",
		alerts: []string{"MsghandlerProducerUncertain"}, runbook: "MsghandlerProducerUncertain",
		words: func(*world) []string { return []string{"PRODUCER", "orders"} },
	},
	{
		name: "runaway producer", before: (*world).makePast, breaks: (*world).flood, goesOn: (*world).flood,
		console: "producer orders sends", finding: "producer-runaway", alerts: []string{"MsghandlerProducerRunaway"},
		runbook: "MsghandlerProducerRunaway",
	},
	{
		name: "Confirm hangs", breaks: (*world).hangConfirm,
		console: cause.ProducerMute.Remedy, finding: "messages-unanswered", alerts: []string{"MsghandlerProducerAway"},
		cause: "producer-mute", runbook: "MsghandlerProducerAway", block: 2,
		words: func(*world) []string { return []string{"PRODUCER", "orders"} },
	},
	{
		name: "queue at its limit", breaks: (*world).limitQueue, goesOn: (*world).order,
		console: "max-length-bytes with overflow reject-publish", finding: "refused-queue-full",
		alerts: []string{"MsghandlerRefused"}, cause: "refused-queue-full", runbook: "MsghandlerRefused", block: 1,
		words: func(*world) []string { return []string{"NAME", exchange, "QUEUE", fullQueue} },
	},
	{
		name: "virtual host deleted", breaks: (*world).deleteVhost, goesOn: (*world).order,
		console: "create the virtual host with its queues", finding: "rabbitmq-vhost",
		alerts: []string{"MsghandlerBrokerAway"}, cause: "rabbitmq-vhost", runbook: "MsghandlerBrokerAway", block: 1,
		words: func(*world) []string {
			return []string{"VHOST", "/", "USER", "guest", "NAME", exchange, "QUEUE", queue, "KEY", key}
		},
	},
	{
		name: "slow handshake", breaks: (*world).slowHandshake, goesOn: (*world).order,
		console: cause.RabbitMQHandshake.Remedy, finding: "rabbitmq-handshake",
		alerts: []string{"MsghandlerBrokerAway"}, cause: "rabbitmq-handshake", runbook: "MsghandlerBrokerAway", block: 2,
		words: func(*world) []string { return []string{"BROKER", "rabbitmq-server"} },
	},
	{
		name: "NATS away", breaks: (*world).killNATS, goesOn: (*world).order,
		console: "broker events: ", finding: "broker-away",
		alerts: []string{"MsghandlerBrokerAway"}, cause: "broker-away", runbook: "MsghandlerBrokerAway", block: 2,
		words: func(*world) []string { return []string{"BROKER", "nats-server"} },
	},
	{
		name: "Kafka away", breaks: (*world).killKafka, goesOn: (*world).order,
		console: "broker logs: ", finding: "broker-away",
		alerts: []string{"MsghandlerBrokerAway"}, cause: "broker-away", runbook: "MsghandlerBrokerAway", block: 2,
		words: func(*world) []string { return []string{"BROKER", "kafka-server"} },
	},
	{
		name: "password rotated", breaks: (*world).rotatePassword, goesOn: (*world).order,
		console: "give the user the right to publish", finding: "broker-login",
		alerts: []string{"MsghandlerBrokerAway"}, cause: "broker-login", runbook: "MsghandlerBrokerAway", block: 3,
		words: func(w *world) []string {
			return []string{"URL", strings.Replace(w.nats.URL, "nats://", "nats://"+login+":"+secret+"@", 1), "BROKER", "events"}
		},
	},
	{
		name: "one coordinator cut off", breaks: (*world).cutOff, goesOn: (*world).order,
		console: `the check "rabbitmq" fails: `, finding: "rabbitmq-away",
		alerts: []string{"MsghandlerBrokerAway"}, cause: "rabbitmq-away", runbook: "MsghandlerBrokerAway", block: 4,
		words: func(w *world) []string { return []string{"BROKER", w.toRabbit.Addr} },
	},
	{
		name: "configuration refused", breaks: (*world).refuseConfiguration, goesOn: (*world).order,
		console: "fix what the error names; the file is read again", finding: "config-refused",
		alerts: []string{"MsghandlerConfigRefused"}, runbook: "MsghandlerConfigRefused",
		words: func(*world) []string { return []string{"KEY", wrongKey} },
	},
	{
		name: "certificate expired", breaks: (*world).expireCertificate, goesOn: (*world).order,
		console: cause.CertificateExpired.Remedy, finding: "certificate-expired",
		alerts: []string{"MsghandlerCertificateExpired"}, runbook: "MsghandlerCertificateExpired",
		words: func(w *world) []string {
			cert, key := w.authority.Issue("coordinator")
			return []string{"CERT", cert, "KEY", key}
		},
	},
	{
		// A virtual host that was deleted is declared again as its consumers know it: without the exchange of the rows.
		name: "plain outbox refused", before: (*world).declare, breaks: (*world).fillPlain, goesOn: (*world).fillPlain,
		console: "bind a queue to the exchange " + plainExchange, finding: "outbox-refused",
		alerts: []string{"MsghandlerRefused"}, cause: "refused-no-route", runbook: "MsghandlerRefused",
		words: func(*world) []string { return []string{"NAME", plainExchange, "QUEUE", queue, "KEY", key} },
	},
	{
		name: "outbox locked", breaks: (*world).lockOutbox, goesOn: (*world).order,
		console: cause.OutboxLocked.Remedy, finding: "outbox-locked",
		alerts: []string{"MsghandlerOutboxDown"}, cause: "outbox-locked", runbook: "MsghandlerOutboxDown",
		words: func(w *world) []string { return []string{"URL", w.outbox.URL()} },
	},
	{
		name: "disk of Redis full", breaks: (*world).fillDisk, goesOn: (*world).order,
		console: cause.RedisDisk.Remedy, finding: "redis-disk",
		alerts: []string{"MsghandlerStoreAway"}, cause: "redis-disk", runbook: "MsghandlerStoreAway",
	},
	{
		name: "many producers gone", breaks: (*world).stopCrowd,
		console: cause.ProducerAway.Remedy, finding: "messages-unanswered", alerts: []string{"MsghandlerProducersAway"},
		cause: "producer-away", runbook: "MsghandlerProducerAway",
		words: func(*world) []string { return []string{"PRODUCER", "crowd"} },
	},
	{
		// The last of all that concern Redis: from then on another server is the master.
		name: "replica promoted", breaks: (*world).promoteReplica, goesOn: (*world).order,
		console: cause.RedisReplica.Remedy, finding: "redis-replica",
		alerts: []string{"MsghandlerStoreAway"}, cause: "redis-replica", runbook: "MsghandlerStoreAway", block: 1,
		words: func(w *world) []string { return []string{"MASTER", w.replica.URL()} },
	},
}
