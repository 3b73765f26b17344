package cause

import (
	"errors"
	"net"
	"regexp"
	"strings"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// redisAnswers are the codes with which Redis begins its errors, and their causes.
var redisAnswers = []struct {
	code string
	is   Cause
}{
	{"NOAUTH", RedisLogin},
	{"WRONGPASS", RedisLogin},
	{"ERR invalid password", RedisLogin},
	{"ERR AUTH", RedisLogin},
	{"NOPERM", RedisPermission},
	{"ERR ACL failure in script", RedisPermission},
	{"READONLY", RedisReplica},
	{"OOM", RedisFull},
	{"MISCONF", RedisDisk},
	{"LOADING", RedisLoading},
	{"NOREPLICAS", RedisNoReplicas},
	{"CLUSTERDOWN", RedisClusterDown},
	{"MASTERDOWN", RedisReplica}, // a replica answers so that has lost its master
	{"BUSY ", RedisBusy},
	{"ERR max number of clients", RedisClients},
	{"redis: nil", RedisAway}, // Sentinels answer so that know no master of the name
}

func ofRedis(err error) Cause {
	var answer interface {
		error
		RedisError()
	}
	if errors.As(err, &answer) {
		for _, r := range redisAnswers {
			if strings.HasPrefix(answer.Error(), r.code) {
				return r.is
			}
		}
		return RedisRefuses
	}
	var name *net.DNSError
	switch {
	case isTLS(err):
		return RedisTLS
	case errors.As(err, &name):
		return RedisAway
	case isTimeout(err), strings.Contains(err.Error(), "connection pool"):
		return RedisMute
	}
	return RedisAway
}

func ofRabbitMQ(err error) Cause {
	says := func(words string) bool { return strings.Contains(err.Error(), words) }
	switch {
	case errors.Is(err, publish.ErrAccessRefused) && says("connection limit"):
		return RabbitMQLimit
	case errors.Is(err, publish.ErrAccessRefused) && says("NOT_ALLOWED"):
		return RabbitMQVhost
	case errors.Is(err, publish.ErrAccessRefused):
		return RabbitMQLogin
	case isTLS(err):
		return RabbitMQTLS
	case errors.Is(err, publish.ErrHandshake):
		return RabbitMQHandshake
	case errors.Is(err, publish.ErrBlocked):
		return RabbitMQAlarm
	case says("INTERNAL_ERROR"): // such as: vhost '/' is down
		return RabbitMQRefuses
	}
	return RabbitMQAway
}

func ofBroker(err error) Cause {
	switch {
	case errors.Is(err, publish.ErrAccessRefused):
		return BrokerLogin
	case isTLS(err):
		return BrokerTLS
	case errors.Is(err, publish.ErrHandshake):
		return BrokerHandshake
	case errors.Is(err, publish.ErrBlocked):
		return BrokerBlocked
	}
	return BrokerAway
}

// databaseCode is the code in the errors of PostgreSQL (SQLSTATE 42P01) and of MySQL (Error 1146).
var databaseCode = regexp.MustCompile(`\(SQLSTATE ([0-9A-Z]{5})\)|\bError (\d{4})\b`)

// databaseCodes are the causes by that code.
var databaseCodes = map[string]Cause{
	"57P01": OutboxAway, "57P02": OutboxAway, "57P03": OutboxAway, "1053": OutboxAway,
	"28000": OutboxLogin, "28P01": OutboxLogin, "3D000": OutboxLogin,
	"1044": OutboxLogin, "1045": OutboxLogin, "1049": OutboxLogin, "1698": OutboxLogin,
	"42P01": OutboxTable, "3F000": OutboxTable, "1146": OutboxTable,
	"42501": OutboxRights, "1142": OutboxRights, "1143": OutboxRights,
	"25006": OutboxReadOnly, "1290": OutboxReadOnly, "1836": OutboxReadOnly,
	"55P03": OutboxLocked, "57014": OutboxLocked, "40P01": OutboxLocked, "1205": OutboxLocked, "1213": OutboxLocked,
	"3159": OutboxTLS,
}

func ofDatabase(err error) Cause {
	if code := databaseCode.FindStringSubmatch(err.Error()); code != nil {
		if known, is := databaseCodes[code[1]+code[2]]; is {
			return known
		}
		return OutboxRefuses
	}
	switch {
	case isTLS(err):
		return OutboxTLS
	case isTimeout(err) && !isDial(err):
		return OutboxLocked
	}
	return OutboxAway
}

// refusals are the words by which the answers of brokers to a message are told apart, as errors of messages and of
// exchanges are known as text.
var refusals = []struct {
	words string
	is    Cause
}{
	// First, as their reasons may have the codes below: a refused login is no lack of a permission.
	{publish.ErrDisconnected.Error(), MessageUnsent},
	{publish.ErrBlocked.Error(), MessageUnsent},
	{"NO_ROUTE", RefusedNoRoute},
	{"NOT_FOUND", RefusedNoExchange},
	{"ACCESS_REFUSED", RefusedPermission},
	{"AUTHORIZATION_FAILED", RefusedPermission},
	{"ermissions Violation", RefusedPermission},
	{"nack by the broker", RefusedQueueFull},
	{publish.ErrStalled.Error(), RefusedStalled},
	{"UNKNOWN_TOPIC", RefusedNoTopic},
	{"no stream \"", RefusedNoStream},
	{"does not take the subject", RefusedNoStream},
	{"messages exceeded", RefusedStreamFull},
	{"bytes exceeded", RefusedStreamFull},
	{"messages per subject exceeded", RefusedStreamFull},
}

// OfRefusal is the cause behind a broker's answer to a message. Without a known cause the name is messages-refused.
func OfRefusal(failure, exchange, routingKey string) Cause {
	found := RefusedOtherwise
	for _, r := range refusals {
		if strings.Contains(failure, r.words) {
			found = r.is
			break
		}
	}
	queue, key := "the queues of the exchange "+exchange, ""
	if routingKey != "" {
		key = " for the routing key " + routingKey
	}
	switch {
	case exchange == "" && routingKey != "":
		queue = "queue " + routingKey
	case exchange == "":
		queue = "the queue of the routing key"
	}
	if exchange == "" {
		exchange = "(default)"
	}
	return found.with("{exchange}", exchange, "{for key}", key, "{queue}", queue)
}
