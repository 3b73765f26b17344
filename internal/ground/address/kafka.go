package address

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kafka is the address of a Kafka cluster, with the options of its connections.
type Kafka struct {
	// Hosts are HOST:PORT of some of the brokers; the cluster names the others.
	Hosts          []string
	User, Password string
	// Mechanism is how the user logs in, one of the SASL constants; empty without a user.
	Mechanism string
	// TLS asks for TLS, Unverified for not looking at the brokers' certificates.
	TLS, Unverified bool
	// CA, Cert and Key are PEM files: the authorities of the brokers, and the certificate to show with its key.
	CA, Cert, Key string
	// ClientID is the name of each connection; empty where nothing is said.
	ClientID string
	// MaxMessage is the max.message.bytes of the topics; 0 where nothing is said.
	MaxMessage int
}

// The mechanisms of a login.
const (
	SASLPlain    = "plain"
	SASLScram256 = "scram-sha-256"
	SASLScram512 = "scram-sha-512"
)

var mechanisms = []string{SASLPlain, SASLScram256, SASLScram512}

const kafkaForm = "kafka://[user:password@]host:port,host:port[?tls=true&sasl=scram-sha-256]"

// The options of Kafka beside skip_verify, which Redis has too.
const (
	optionCA         = "ca"
	optionCert       = "cert"
	optionClientID   = "client_id"
	optionKey        = "key"
	optionMaxMessage = "max_message_bytes"
	optionSASL       = "sasl"
	optionTLS        = "tls"
)

var kafkaOptions = []string{
	optionCA, optionCert, optionClientID, optionKey, optionMaxMessage, optionSASL, optionUnverified, optionTLS,
}

const (
	// leastMessage and mostMessage bound max_message_bytes, as the client does.
	leastMessage = 1 << 10
	mostMessage  = 1 << 30
)

// ParseKafka reads the address of a Kafka cluster, kafka://USER:PASSWORD@HOST:PORT,HOST:PORT. Ports may be left out. A
// user logs in by sasl=plain (the default), scram-sha-256 or scram-sha-512. tls=true asks for TLS; ca, cert and key
// name PEM files, and skip_verify=true looks at no certificate.
func ParseKafka(text string) (Kafka, error) {
	u, hosts, err := parse(text, kafkaForm, "kafka")
	if err != nil {
		return Kafka{}, err
	}
	written, err := readOptions(u, kafkaOptions)
	if err != nil {
		return Kafka{}, err
	}
	o := options{values: written}
	k := Kafka{
		User: u.User.Username(), Mechanism: o.text(optionSASL), TLS: o.boolean(optionTLS),
		Unverified: o.boolean(optionUnverified), CA: o.text(optionCA), Cert: o.text(optionCert), Key: o.text(optionKey),
		ClientID: o.text(optionClientID), MaxMessage: o.whole(optionMaxMessage, mostMessage),
	}
	k.Password, _ = u.User.Password()
	if o.err != nil {
		return Kafka{}, o.err
	}
	if strings.Trim(u.Path, "/") != "" {
		return Kafka{}, errors.New("has a path, and Kafka has none; write " + kafkaForm + ", and topics in the messages")
	}
	for _, text := range hosts {
		host, err := readHost(text, "9092")
		if err != nil {
			return Kafka{}, err
		}
		k.Hosts = append(k.Hosts, host)
	}
	return k.checked()
}

// checked refuses contradicting options, and adds the default mechanism.
func (k Kafka) checked() (Kafka, error) {
	if k.User != "" && k.Mechanism == "" {
		k.Mechanism = SASLPlain
	}
	switch {
	case k.Mechanism != "" && !slices.Contains(mechanisms, k.Mechanism):
		return Kafka{}, fmt.Errorf("has a value of the option sasl that cannot be; write %s", strings.Join(mechanisms, ", "))
	case k.Mechanism != "" && (k.User == "" || k.Password == ""):
		return Kafka{}, errors.New("has a login without its user or its password; write user:password@ before the hosts")
	case !k.TLS && (k.Unverified || k.CA+k.Cert+k.Key != ""):
		return Kafka{}, errors.New("has an option of TLS and does not ask for TLS; add tls=true, or leave out " +
			"ca, cert, key and skip_verify")
	case (k.Cert == "") != (k.Key == ""):
		return Kafka{}, errors.New("has one of the options cert and key; give both, or neither")
	case k.MaxMessage != 0 && k.MaxMessage < leastMessage:
		return Kafka{}, fmt.Errorf("has a value of the option max_message_bytes that cannot be; write a number from %d to %d",
			leastMessage, mostMessage)
	}
	return k, nil
}
