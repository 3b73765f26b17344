package amqpconn_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// certificate is a self-signed certificate for one host.
func certificate(t *testing.T, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(signed)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key, Leaf: leaf}
}

// behindTLS is an address that speaks TLS for a broker, until the test ends.
func behindTLS(t *testing.T, broker string, as tls.Certificate) (port string) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{as}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			pass(client, broker)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	_, port, err = net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// pass forwards a connection until either side ends the connection.
func pass(client net.Conn, broker string) {
	defer client.Close()
	server, err := net.Dial("tcp", broker)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_, _ = io.Copy(server, client)
}

// Each node of a cluster has its own certificate, and a single Config is for all nodes.
func TestEachNodeHasItsOwnCertificate(t *testing.T) {
	t.Parallel()
	broker := servers.RabbitMQ(t)
	config := config
	config.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	for _, host := range []string{"localhost", "127.0.0.1"} {
		own := certificate(t, host)
		config.TLS.RootCAs.AddCert(own.Leaf)
		port := behindTLS(t, wire.Host(t, broker.URL), own)
		url := strings.Replace(strings.Replace(broker.URL, "amqp:", "amqps:", 1), wire.Host(t, broker.URL), host+":"+port, 1)
		conn, err := amqpconn.Dial(t.Context(), url, config)
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		conn.CloseWithin(patience)
	}
	if config.TLS.ServerName != "" {
		t.Errorf("the caller's own configuration names %q now", config.TLS.ServerName)
	}
}
