import jakarta.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;

/** A JMS producer with a delivery delay: java -cp 'FOLDER/*' Delaying.java URL TOPIC. */
public class Delaying {
    public static void main(String[] arguments) throws Exception {
        try (Connection connection = new JmsConnectionFactory(arguments[0]).createConnection()) {
            Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createTopic(arguments[1]));
            producer.setDeliveryDelay(1000);
            producer.send(session.createMessage());
            System.out.println("sent");
        } catch (JMSException refused) {
            System.out.println("refused: " + refused.getMessage());
        }
    }
}
