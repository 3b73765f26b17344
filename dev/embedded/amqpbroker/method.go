package amqpbroker

import "fmt"

// methodID is a method's class in its upper and its number in its lower half.
type methodID uint32

func (id methodID) class() uint16  { return uint16(id >> 16) }
func (id methodID) number() uint16 { return uint16(id) }

// classBasic is the only class whose methods carry content.
const classBasic = 60

// The methods of AMQP 0-9-1 with RabbitMQ's additions, as far as this broker speaks them.
const (
	connectionStart   methodID = 10<<16 | 10
	connectionStartOK methodID = 10<<16 | 11
	connectionTune    methodID = 10<<16 | 30
	connectionTuneOK  methodID = 10<<16 | 31
	connectionOpen    methodID = 10<<16 | 40
	connectionOpenOK  methodID = 10<<16 | 41
	connectionClose   methodID = 10<<16 | 50
	connectionCloseOK methodID = 10<<16 | 51

	connectionBlocked   methodID = 10<<16 | 60
	connectionUnblocked methodID = 10<<16 | 61

	channelOpen    methodID = 20<<16 | 10
	channelOpenOK  methodID = 20<<16 | 11
	channelClose   methodID = 20<<16 | 40
	channelCloseOK methodID = 20<<16 | 41

	exchangeDeclare   methodID = 40<<16 | 10
	exchangeDeclareOK methodID = 40<<16 | 11
	exchangeDelete    methodID = 40<<16 | 20
	exchangeDeleteOK  methodID = 40<<16 | 21

	queueDeclare   methodID = 50<<16 | 10
	queueDeclareOK methodID = 50<<16 | 11
	queueBind      methodID = 50<<16 | 20
	queueBindOK    methodID = 50<<16 | 21
	queuePurge     methodID = 50<<16 | 30
	queuePurgeOK   methodID = 50<<16 | 31
	queueDelete    methodID = 50<<16 | 40
	queueDeleteOK  methodID = 50<<16 | 41
	queueUnbind    methodID = 50<<16 | 50
	queueUnbindOK  methodID = 50<<16 | 51

	basicQos       methodID = 60<<16 | 10
	basicQosOK     methodID = 60<<16 | 11
	basicConsume   methodID = 60<<16 | 20
	basicConsumeOK methodID = 60<<16 | 21
	basicCancel    methodID = 60<<16 | 30
	basicCancelOK  methodID = 60<<16 | 31
	basicPublish   methodID = 60<<16 | 40
	basicReturn    methodID = 60<<16 | 50
	basicDeliver   methodID = 60<<16 | 60
	basicGet       methodID = 60<<16 | 70
	basicGetOK     methodID = 60<<16 | 71
	basicGetEmpty  methodID = 60<<16 | 72
	basicAck       methodID = 60<<16 | 80
	basicReject    methodID = 60<<16 | 90
	basicNack      methodID = 60<<16 | 120

	confirmSelect   methodID = 85<<16 | 10
	confirmSelectOK methodID = 85<<16 | 11
)

// The reply codes, with the names that RabbitMQ puts before its texts.
const (
	codeNoRoute            = 312
	codeAccessRefused      = 403
	codeNotFound           = 404
	codeResourceLocked     = 405
	codePreconditionFailed = 406
	codeFrameError         = 501
	codeSyntaxError        = 502
	codeCommandInvalid     = 503
	codeChannelError       = 504
	codeUnexpectedFrame    = 505
	codeNotAllowed         = 530
	codeNotImplemented     = 540
	codeInternalError      = 541
)

var codeNames = map[uint16]string{
	codeAccessRefused:      "ACCESS_REFUSED",
	codeNotFound:           "NOT_FOUND",
	codeResourceLocked:     "RESOURCE_LOCKED",
	codePreconditionFailed: "PRECONDITION_FAILED",
	codeFrameError:         "FRAME_ERROR",
	codeSyntaxError:        "SYNTAX_ERROR",
	codeCommandInvalid:     "COMMAND_INVALID",
	codeChannelError:       "CHANNEL_ERROR",
	codeUnexpectedFrame:    "UNEXPECTED_FRAME",
	codeNotAllowed:         "NOT_ALLOWED",
	codeNotImplemented:     "NOT_IMPLEMENTED",
	codeInternalError:      "INTERNAL_ERROR",
}

// exception is a protocol error that closes a channel, or the whole connection, with a reason for the client.
type exception struct {
	code uint16
	text string
	// hard exceptions close the connection.
	hard bool
}

func (e *exception) Error() string {
	return fmt.Sprintf("%s - %s", codeNames[e.code], e.text)
}

// channelError closes the channel of the error.
func channelError(code uint16, format string, arguments ...any) *exception {
	return &exception{code: code, text: fmt.Sprintf(format, arguments...)}
}

// connectionError closes the connection of the error.
func connectionError(code uint16, format string, arguments ...any) *exception {
	return &exception{code: code, text: fmt.Sprintf(format, arguments...), hard: true}
}
