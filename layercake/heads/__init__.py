"""Several heads of one site: etcd, the log that they share, who leads, and who follows."""
