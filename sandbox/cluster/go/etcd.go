//go:build !without_etcd

package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func init() {
	commands["etcd"] = func() { etcdmain.Main(os.Args) }
}
