// Logs in with go-amqp as the variables LOGIN_* say; prints `opened` or why not.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

func main() {
	user, secret := os.Getenv("LOGIN_USER"), os.Getenv("LOGIN_SECRET")
	authority, err := os.ReadFile(os.Getenv("LOGIN_CA"))
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	options := &amqp.ConnOptions{ContainerID: "login-go-amqp", TLSConfig: &tls.Config{RootCAs: roots}}
	switch os.Getenv("LOGIN_MECHANISM") {
	case "EXTERNAL":
		own, err := tls.LoadX509KeyPair(os.Getenv("LOGIN_CERT"), os.Getenv("LOGIN_KEY"))
		if err != nil {
			panic(err)
		}
		options.TLSConfig.Certificates = []tls.Certificate{own}
		options.SASLType = amqp.SASLTypeExternal(user)
	case "XOAUTH2":
		options.SASLType = amqp.SASLTypeXOAUTH2(user, secret, 8192)
	case "PLAIN":
		options.SASLType = amqp.SASLTypePlain(user, secret)
	default:
		options.SASLType = amqp.SASLTypeAnonymous()
	}
	limit, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	connection, err := amqp.Dial(limit, "amqps://localhost:"+os.Getenv("LOGIN_PORT"), options)
	if err != nil {
		fmt.Println("refused", err)
		return
	}
	fmt.Println("opened")
	_ = connection.Close()
}
