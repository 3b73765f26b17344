package cause

import "slices"

// table has every cause, in the order below.
var table []Cause

// row adds a cause to the table.
func row(name, why, remedy string) Cause {
	c := Cause{Name: name, Why: why, Remedy: remedy}
	table = append(table, c)
	return c
}

// All is the table, with the placeholders of the remedies.
func All() []Cause { return slices.Clone(table) }

const redisMatters = "producers get UNAVAILABLE, and nothing is delivered"

// The causes in Redis.
var (
	RedisAway = row("redis-away", redisMatters,
		"start Redis, or set redis.url to where it is, with rediss:// where it serves TLS")
	RedisMute = row("redis-mute", redisMatters,
		"look whether the host of Redis is up and the network lets packets through, and then what holds Redis up: "+
			"its CPU, its disk, a slow script (SLOWLOG GET)")
	RedisBusy = row("redis-mute", redisMatters,
		"a script holds Redis up: end it with SCRIPT KILL; do not use SHUTDOWN NOSAVE, which loses messages")
	RedisLogin = row("redis-login", redisMatters,
		"set the present user and password in redis.url, and restart the coordinators one by one; of redis.url_file the "+
			"next connection takes them without a restart")
	RedisPermission = row("redis-permission", redisMatters,
		"ACL SETUSER with ~PREFIX:* &PREFIX:* +@all -@dangerous +info +config|get, with the value of redis.prefix")
	RedisReplica = row("redis-replica", "it takes no writes: "+redisMatters,
		"point redis.url to the present master, or to the Sentinels with ?master=NAME; do not make the replica writable")
	RedisFull = row("redis-full",
		"half messages are refused with RESOURCE_EXHAUSTED; stored messages are delivered anyway",
		"raise maxmemory (CONFIG SET, and its file); see what fills it: msghandler stats, redis-cli --bigkeys")
	RedisDisk = row("redis-disk", "it refuses every write, so no message is accepted",
		"make room on the disk of Redis, and look into its log")
	RedisLoading = row("redis-loading", redisMatters,
		"wait: Redis reads its data after a start; INFO persistence shows loading_eta_seconds")
	RedisNoReplicas = row("redis-no-replicas", redisMatters, "start its replicas, or lower min-replicas-to-write")
	RedisMasterAway = row("redis-master-away",
		"half messages of its shards get UNAVAILABLE, and their messages wait in Redis; the other shards work",
		"look at the master that the error names, or promote one of its replicas (redis-cli cluster failover)")
	RedisClusterDown = row("redis-master-away", redisMatters,
		"see redis-cli cluster nodes: start the masters that failed, or promote one of the replicas of each "+
			"(redis-cli cluster failover)")
	RedisClients = row("redis-clients", redisMatters, "raise maxclients of Redis, or close the connections of others")
	RedisTLS     = row("redis-tls", redisMatters,
		"write rediss:// in redis.url where Redis serves TLS, and redis:// where it "+
			"does not; give Redis a certificate for that host, of an authority that this machine trusts")
	RedisSlow = row("redis-slow",
		"each message takes several round trips to Redis: producers wait, and messages go out late",
		"measure the way to Redis (redis-cli --latency), and look at what slows Redis down: its CPU, its disk "+
			"(LATENCY DOCTOR, INFO persistence), slow commands (SLOWLOG GET); run coordinators near Redis")
	RedisRefuses = row("redis-refuses", redisMatters, "look into Redis's log for what the error names")
)

const brokerMatters = "messages are accepted, and wait in Redis until the broker takes them"

// The causes at brokers.
var (
	RabbitMQAway  = row("rabbitmq-away", brokerMatters, "start RabbitMQ, or set {key} to where it is")
	RabbitMQLogin = row("rabbitmq-login", brokerMatters,
		"set the present user and password in {key}, and restart the coordinators one by one (rabbitmqctl list_users); of "+
			"{key}_file the next connection takes them without a restart")
	RabbitMQVhost = row("rabbitmq-vhost", brokerMatters,
		"create the virtual host with its queues, give the user permissions in it, or correct {key}: "+
			"rabbitmqctl list_vhosts, list_permissions -p VHOST")
	RabbitMQLimit = row("rabbitmq-vhost", brokerMatters,
		"raise the limit of connections that the error names, or close the connections of others: "+
			"rabbitmqctl list_connections user vhost peer_host, list_vhost_limits, list_user_limits")
	RabbitMQTLS = row("rabbitmq-tls", brokerMatters,
		"write amqps:// in {key} where RabbitMQ serves TLS, and amqp:// where it "+
			"does not; give RabbitMQ a certificate for that host, of an authority that this machine trusts")
	RabbitMQHandshake = row("rabbitmq-handshake", brokerMatters,
		"look why RabbitMQ accepts connections and does not open them: its load, its start, a proxy before it, "+
			"TLS at that port")
	RabbitMQAlarm = row("rabbitmq-alarm", brokerMatters,
		"look at its alarms: rabbitmq-diagnostics alarms; give it memory or disk")
	RabbitMQPermission = row("rabbitmq-permission",
		"messages to it end DEAD; those to exchanges that the user may write to do not",
		"rabbitmqctl set_permissions: the user must be allowed to write to every exchange that producers name")
	RabbitMQRefuses = row("rabbitmq-refuses", brokerMatters, "look into RabbitMQ's log")
	BrokerSlow      = row("broker-slow", "messages arrive late; those without an acknowledgement within "+
		"send.confirm_timeout are published again", "look at the broker of {key}: its disk, its load, flow control, the "+
		"replicas that must confirm, and the way to it")
	BrokerAway  = row("broker-away", brokerMatters, "start the broker, or set {key} to where it is")
	BrokerLogin = row("broker-login", brokerMatters,
		"set the present user and password in {key}, give the user the right to publish, and restart the coordinators one "+
			"by one; of {key}_file the next connection takes them without a restart")
	BrokerTLS = row("broker-tls", brokerMatters, "compare the TLS of {key} with that of the listener; give the broker a "+
		"certificate for that host, of an authority that is trusted here")
	BrokerHandshake = row("broker-handshake", brokerMatters,
		"look at the load and the log of the broker, and compare user, password, sasl and tls of {key} with the listener: "+
			"the broker takes connections, and does not open them")
	BrokerBlocked = row("broker-blocked", brokerMatters,
		"look at the replicas of the topics of Kafka, or at JetStream's room and leader of NATS")
)

const refusedMatters = "its messages wait, and become DEAD after send.backoff"

// The causes of messages that a broker has refused, or not got.
var (
	MessageUnsent = row("messages-stuck", brokerMatters,
		"look at what msghandler doctor finds about the broker; the messages go out by themselves when it takes them")
	RefusedNoRoute = row("refused-no-route", refusedMatters,
		"bind a queue to the exchange {exchange}{for key}; retry what is DEAD then")
	RefusedNoExchange = row("refused-no-exchange", refusedMatters,
		"declare the exchange {exchange}, or correct the producer; retry what is DEAD then")
	RefusedPermission = row("refused-permission", refusedMatters,
		"give the broker's user the permission to write to {exchange}{for key}; retry what is DEAD then")
	RefusedQueueFull = row("refused-queue-full", refusedMatters,
		"start consumers of {queue}, or raise the limit (max-length or max-length-bytes with overflow reject-publish): "+
			"rabbitmqctl list_queues name messages arguments policy; without a limit look into RabbitMQ's log")
	RefusedStalled = row("queue-stalled", "its messages wait, and use up no attempts",
		"start the missing nodes of {queue}: rabbitmq-queues quorum_status NAME shows them")
	RefusedNoTopic = row("refused-no-topic", refusedMatters,
		"create the topic {exchange}, or correct the producer; retry what is DEAD then")
	RefusedNoStream = row("refused-no-stream", refusedMatters,
		"add the stream {exchange} with the subject{for key}, or correct the producer; retry what is DEAD then")
	RefusedStreamFull = row("refused-stream-full", refusedMatters,
		"raise max_msgs, max_bytes or max_msgs_per_subject of the stream {exchange}, or start its consumers: "+
			"nats stream info {exchange}")
	RefusedOtherwise = row("messages-refused", refusedMatters,
		"fix what the error about the exchange {exchange} names; retry what is DEAD then")
)

const producerMatters = "its messages wait until it answers"

// The causes at producers.
var (
	ProducerAway       = row("producer-away", producerMatters, "start it, or correct its callback target")
	ProducerUnattended = row("producer-away", producerMatters,
		"start it; if it runs, look in its log why it attends no coordinator")
	ProducerGateway = row("producer-away", producerMatters,
		"start it, or look why what answers in its place finds it away")
	ProducerSwallowed = row("producer-away", producerMatters,
		"something swallows what is sent there: let the coordinator through to it, or look whether what listens there hangs")
	ProducerUnresolved = row("producer-away", producerMatters,
		"look whether the name in its callback target resolves from here; correct it, or the DNS")
	ProducerForbidden = row("producer-forbidden", "its half messages are refused",
		"write host:port or a plain URL, and allow it in callbacks.allow")
	ProducerOutside = row("producer-forbidden", producerMatters,
		"add that network to callbacks.networks, beside those of all other producers (empty, it holds the public addresses "+
			"only); or have callbacks.allow and the target name the address itself")
	ProducerNeverCalled = row("producer-forbidden", producerMatters,
		"give the producer an address of its own; no setting allows that address")
	ProducerRefuses = row("producer-refuses", producerMatters,
		"set callbacks.token_file, or producers.NAME.token_file, to a token that its Coordinators accept; or have "+
			"callbacks.tls_cert and its server's TLS show it a certificate with one of the names there")
	ProducerAnother = row("producer-another", producerMatters,
		"name the producer as it is called there, or correct its callback target: a producer with another name listens there")
	ProducerNoService = row("producer-no-service", producerMatters,
		"name the address at which it serves msghandler.v1.ProducerService, or register that service")
	ProducerNoGRPC = row("producer-no-service", producerMatters,
		"name the address at which it serves gRPC: what listens there speaks something else, or asks for TLS; for that set "+
			"producers.NAME.tls")
	ProducerNoURL = row("producer-no-service", producerMatters,
		"name the URL below which it takes POST /confirm and POST /deleteBusiness; for a producer by gRPC write host:port")
	ProducerNeedsTLS = row("producer-no-service", producerMatters,
		"write https:// in its URL: that port takes TLS only")
	ProducerCertificate = row("producer-certificate", producerMatters,
		"give it a certificate for the host of its callback target, of an authority in callbacks.tls_ca; where it asks for "+
			"one, let it take that of callbacks.tls_cert; where it serves without TLS, set producers.NAME.tls to false, or "+
			"write http:// in its URL")
	ProducerNoVerdict = row("producer-no-verdict", "no answer is no verdict, and a bare true or false says nothing of a "+
		"single message: its messages wait", "answer with a verdict for each id, by its name; an id without a row is "+
		"VERDICT_UNKNOWN, never ROLLED_BACK or false, because its transaction may commit a moment later")
	ProducerMute = row("producer-mute", producerMatters,
		"find what holds up its Confirm, such as a lock or a slow query in its database, or raise confirm.timeout")
	ProducerUnable = row("producer-fails", producerMatters,
		"look at the producer's log, and at the database that holds its business data: it cannot look up its transactions")
	ProducerFails = row("producer-fails", producerMatters,
		"look into its log, and at its database: an id that it does not know is UNKNOWN, not an error")
)

// The causes of bad answers and of too many messages of a producer.
var (
	ProducerUnknown = row("producer-unknown",
		"messages without a verdict wait, and become ABANDONED after confirm.attempts",
		"look whether Confirm of {name} reads another database, or a replica that lags; and whether transactions of {name} "+
			"fail or take long: msghandler list --state pending --producer {name}")
	ProducerErrors = row("producer-errors", "the messages wait for the next Confirm call",
		"look into the log of {name}, at its database, and for a replica that fails: msghandler list --state pending "+
			"--producer {name} shows the errors")
	ProducerRunaway = row("producer-runaway", "it takes room in Redis and at the broker from all other producers",
		"look why {name} sends so much; bound it with producers.{name}.calls_per_second (for all: policy.calls_per_second), "+
			"which is read again without a restart; where the rate is right, set the key above it")
)

const outboxMatters = "its rows are not published, and wait; half messages are not concerned"

// The causes at the databases of outboxes.
var (
	OutboxAway  = row("outbox-away", outboxMatters, "start the database, or set {key} to where it is")
	OutboxLogin = row("outbox-login", outboxMatters,
		"set the present user, password and database in {key}, and restart the coordinators one by one; of {key}_file the "+
			"next connection takes them without a restart")
	OutboxTable  = row("outbox-table", outboxMatters, "msghandler outbox migrate --database {name}")
	OutboxRights = row("outbox-rights", outboxMatters,
		"grant the user of {key} SELECT, UPDATE and DELETE in the table of outbox.{name}")
	OutboxReadOnly = row("outbox-readonly", outboxMatters,
		"point {key} to the primary: the server is a standby, or was set to read-only")
	OutboxLocked = row("outbox-locked", outboxMatters,
		"find the session that locks the table (pg_stat_activity, SHOW PROCESSLIST), or what slows the database down")
	OutboxRefuses = row("outbox-refuses", outboxMatters, "look into the database's log for what the error names")
	OutboxTLS     = row("outbox-tls", outboxMatters,
		"compare the TLS of {key} with that of the database; give the database a "+
			"certificate for that host, of an authority that is trusted here")
)

const (
	certificateMatters = "those who verify it refuse new connections"
	expiredMatters     = "the certificate expired on {date}: {consequence}"
	renewal            = "the coordinator reads files again within seconds, and sees the new certificate of a server " +
		"with the next connection"
)

// The causes in certificates.
var (
	CertificateEnds = row("certificate-ends", "after its end "+certificateMatters,
		"renew it, and look why what renews certificates has not done it: "+renewal)
	CertificateExpired = row("certificate-expired", certificateMatters,
		"renew it, and put the new files in the place of the old ones: "+renewal)
	ServerExpired = row("certificate-expired", expiredMatters,
		"give the server that {key} names a new certificate: "+renewal)
	ProducerExpired = row("certificate-expired", expiredMatters,
		"give the producer a new certificate, and restart it if it does not read its files again")
	ClientExpired = row("certificate-expired", "the other side refuses the client certificate: {consequence}",
		"renew the client certificate that {key} names: "+renewal)
)

// The causes in a coordinator itself.
var (
	NotServing = row("coordinator-not-serving", "producers use the other coordinators meanwhile",
		"wait until the coordinator has started or ended; its log says why where that takes long")
	Degraded = row("coordinator-degraded", "half messages are accepted, and wait in Redis for this part",
		"fix what the error names; msghandler doctor examines Redis, the brokers and the producers")
	CoordinatorStarved = row("coordinator-starved", starvedMatters,
		"see what takes the CPU of its host (top, also steal), and what pauses its process or its machine")
	CoordinatorThrottled = row("coordinator-starved", starvedMatters,
		"raise its CPU limit, which stops it again and again: resources.limits.cpu of the pod, CPUQuota of systemd")
)

const starvedMatters = "all calls here take longer, and leases end before their work: consumers may get flagged copies"
