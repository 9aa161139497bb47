"""ACLs, delegation tokens and quotas in ZooKeeper."""
